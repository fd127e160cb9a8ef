"""Tables, JSON, contact sheet and sweep plot of attacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from privplan.files import write_bytes, write_text
from privplan.report.plots import figure, picture, verbatim
from simulate.attacks.evaluate import Result, to_json
from simulate.attacks.measures import OTHER, matched

JSON = "attacks.json"
TABLE = "attacks.md"
SHEET = "sheet.png"
CURVE = "epsilon.png"
COLUMNS = (
    "algorithm",
    "attack",
    "clients",
    "sigma",
    "epsilon",
    "label",
    "PSNR (dB)",
    "SSIM",
    "LPIPS",
    "re-identified",
    "result",
)
SHOWN = 10
"""Most images per row of the contact sheet."""


def table_rows(lines: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Cells of the table: each attack, followed by its null row from other updates.

    The rows of the mean image and of noise are the same for all attacks on the same records, and
    are printed once before the first of these attacks.
    """
    rows: list[list[str]] = []
    shown: set[tuple[Any, ...]] = set()
    for line in lines:
        nulls = line.get("nulls", {})
        for name, null in nulls.items():
            mark = (name, null["n"], str(null["psnr"]))
            if name != OTHER and mark not in shown:
                shown.add(mark)
                rows.append(["null", name, "", "", "", "", *_score_cells(null), ""])
        rows.append(_cells(line))
        if OTHER in nulls:
            null_label = line.get("labels", {}).get("null")
            label = "" if null_label is None else f"{null_label:.2f}"
            cells = _score_cells(nulls[OTHER])
            rows.append([f"  null of {line['algorithm']}", OTHER, "", "", "", label, *cells, ""])
    return rows


def _cells(line: Mapping[str, Any]) -> list[str]:
    epsilon = line.get("epsilon", "")
    labels = line.get("labels")
    scores = line.get("scores")
    where = str(line.get("clients", ""))
    if line.get("clients_most", line.get("clients")) != line.get("clients"):
        where += f" to {line['clients_most']}"
    if line.get("local_steps", 1) != 1:
        where += f", {line['local_steps']} steps"
    sigma = line.get("noise_multiplier")
    return [
        str(line["algorithm"]),
        str(line["attack"]),
        where,
        "" if sigma is None else f"{sigma:.3g}",
        epsilon if isinstance(epsilon, str) else f"{epsilon:.3g}, {line['unit']}",
        "" if labels is None else f"{labels['correct'][0]:.2f}",
        *(_score_cells(scores) if scores else ["", "", "", ""]),
        _result_cell(line),
    ]


def _result_cell(line: Mapping[str, Any]) -> str:
    verdict = str(line["verdict"])
    found = line.get("better_than_null", [])
    gone = line.get("without_vanished")
    parts = [f"{verdict}: {', '.join(found)}" if found else verdict]
    if gone is not None and gone["vanished"]:
        parts.append(f"gradient vanished in {gone['vanished']} of {gone['of']}")
    return "; ".join(parts)


def _score_cells(scores: Mapping[str, Any]) -> list[str]:
    cells = []
    for name, form in (("psnr", ".1f"), ("ssim", ".2f"), ("lpips", ".3f"), ("identified", ".2f")):
        value = scores[name]
        if isinstance(value, str):
            cells.append(value)
        else:
            mean, low, high = value
            ends = "" if low is None else f" [{low:{form}}, {high:{form}}]"
            cells.append(f"{mean:{form}}{ends}")
    return cells


def caption(lines: Sequence[Mapping[str, Any]]) -> str:
    """What intervals, results, re-identification and each epsilon of the table mean."""
    chances = {line["scores"]["chance"] for line in lines if "scores" in line}
    chance = " to ".join(dict.fromkeys(f"{f(chances):.2g}" for f in (min, max) if chances))
    parts = [
        "[low, high]: 95% intervals",
        "leaks: better than every null row by the named measure",
        f"re-identified: the original is the nearest of at most 1,000 candidates (chance {chance})",
    ]
    return "; ".join([*(parts if chances else parts[:2]), *epsilons(lines)])


def epsilons(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each epsilon holds for: group, delta, sampling law, relation and accountant."""
    found: dict[str, list[str]] = {}
    for line in lines:
        if "accountant" in line and line["epsilon"] != "inf":
            words = (
                f"over all rounds, group {line['group']}, delta {line['delta']:.3g}, "
                f"{line['sampling']} sampling, {line['relation']}, {line['accountant']}"
            )
            found.setdefault(words, []).append(str(line["algorithm"]))
    return [
        f"epsilon of {', '.join(dict.fromkeys(names))}: {words}" for words, names in found.items()
    ]


def markdown(lines: Sequence[Mapping[str, Any]], title: str) -> str:
    """The table as Markdown."""
    return f"# {title}\n\n{_markdown_table(COLUMNS, table_rows(lines))}\n{caption(lines)}\n"


def _markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


MEMBERSHIP_COLUMNS = (
    "algorithm",
    "unit",
    "epsilon",
    "noise",
    "score",
    "FPR",
    "TPR",
    "certificate allows",
    "in, out",
    "result",
)


def membership_table(
    found: Sequence[Mapping[str, Any]],
) -> tuple[str, Sequence[str], list[list[str]], str]:
    """Title, columns, rows and caption of the membership attack."""
    rows = []
    for one in found:
        epsilon, factor = one["epsilon"], one["noise_factor"]
        for score, levels in one["scores"].items():
            for line in levels:
                rate, low, high = line["tpr"]
                rows.append(
                    [
                        one["algorithm"],
                        one["unit"],
                        epsilon if isinstance(epsilon, str) else f"{epsilon:.3g}",
                        "planned" if factor == 1 else f"{factor:g} of planned",
                        score,
                        f"{line['fpr']:g}",
                        f"{rate:.3f} [{low:.3f}, {high:.3f}]",
                        f"{line['bound']:.4f}",
                        f"{line['in']}, {line['out']}",
                        _membership_result(line, epsilon),
                    ]
                )
    note = (
        "TPR with its 95% Clopper-Pearson interval; above the certificate: the lower end is above "
        "the trade-off curve at the upper end of the false-positive rate's interval"
    )
    note = "; ".join([note, *epsilons(found)])
    runs = found[0]["runs"] if found else 0
    return f"Membership, {runs} runs per algorithm", MEMBERSHIP_COLUMNS, rows, note


def _membership_result(line: Mapping[str, Any], epsilon: float | str) -> str:
    if epsilon == "inf":
        return "no certificate"
    return "above the certificate" if line["crosses"] else "within the certificate"


def write(
    folder: Path,
    title: str,
    header: Mapping[str, Any],
    lines: Sequence[Mapping[str, Any]],
    results: Sequence[Result],
) -> list[str]:
    """Write table, JSON, contact sheet and, for a sweep of the noise, the plot."""
    write_text(folder / JSON, to_json({**header, "title": title, "rows": list(lines)}))
    text = markdown(lines, title) if lines else ""
    if header.get("membership"):
        name, columns, rows, note = membership_table(header["membership"])
        text += f"\n# {name}\n\n{_markdown_table(columns, rows)}\n{note}\n"
    write_text(folder / TABLE, text)
    written = [TABLE, JSON]
    pictured = [result for result in results if result.images]
    if pictured:
        write_bytes(folder / SHEET, contact_sheet(pictured))
        written.append(SHEET)
    swept = [line for line in lines if line.get("unit", "none") != "none"]
    if len({line["noise_multiplier"] for line in swept}) > 2:
        write_bytes(folder / CURVE, sweep_picture(swept))
        written.append(CURVE)
    return written


def contact_sheet(results: Sequence[Result]) -> bytes:
    """PNG: per attack the originals, the reconstructions, and the null of another update.

    A single release has no other update: its null is blank.
    """
    blocks = [(_name(result), _strip(result)) for result in results]
    columns = max(len(strip[0]) for _, strip in blocks)
    height = 0.62 * 3 * len(blocks) + 0.32 * len(blocks) + 0.2
    sheet = figure(max(4.0, 0.62 * columns + 1.6), height)
    engine = sheet.get_layout_engine()
    if engine is not None:
        engine.set(w_pad=0.12)  # type: ignore[call-arg]  # the labels of the rows need it
    axes = np.atleast_1d(sheet.subplots(len(blocks), 1))
    for axis, (name, strip) in zip(axes, blocks, strict=True):
        axis.imshow(_mosaic(strip, columns), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axis.set_title(name, fontsize=8, loc="left")
        side = strip[0][0].shape[1]
        axis.set_yticks([side * (row + 0.5) for row in range(3)])
        axis.set_yticklabels(["original", "reconstruction", "null"], fontsize=7)
        axis.set_xticks([])
    verbatim(sheet)
    return picture(sheet, "png")


def _name(result: Result) -> str:
    scene, factor = result.case.scene, ""
    if getattr(scene, "noise_factor", 1.0) != 1.0:
        factor = f", {scene.noise_factor:g} of the planned noise"  # type: ignore[union-attr]
    clients = getattr(scene, "clients", 1)
    summed = f", sum of {clients} clients" if clients > 1 else ""
    return f"{result.case.algorithm}, {result.case.attack}{summed}{factor}"


def _strip(result: Result) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Originals, reconstructions and reconstructions from the next release's update."""
    alone = len(result.images) == 1
    others = [*result.images[1:], result.images[0] * 0 + 1 if alone else result.images[0]]
    rows: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])
    for found, truth, other in zip(result.images, result.truths, others, strict=True):
        if len(rows[0]) >= SHOWN:
            break
        for row, images in zip(rows, (matched(found, truth.images), found, other), strict=True):
            row.extend(images[: SHOWN - len(row)])
    return rows


def _mosaic(strip: tuple[list[Tensor], ...], columns: int) -> np.ndarray:
    """Rows of images side by side [height, width] or [height, width, 3]."""
    blank = strip[0][0] * 0 + 1
    lines = []
    for images in strip:
        padded = [*images, *[blank] * (columns - len(images))]
        lines.append(np.concatenate([image.permute(1, 2, 0).numpy() for image in padded], 1))
    mosaic: np.ndarray = np.concatenate(lines, 0)
    return mosaic[..., 0] if mosaic.shape[2] == 1 else mosaic


def sweep_picture(lines: Sequence[Mapping[str, Any]]) -> bytes:
    """PNG: PSNR, re-identification and labels by epsilon, with the best null row."""
    sheet = figure(12.0, 3.6)
    panels = sheet.subplots(1, 3)
    measures: tuple[tuple[str, Callable[[Mapping[str, Any]], tuple[float, ...] | None]], ...] = (
        ("PSNR (dB)", partial(_measure, name="psnr")),
        ("re-identified among 1,000", partial(_measure, name="identified")),
        ("correct labels", _labels),
    )
    for name in dict.fromkeys((line["algorithm"], line["attack"]) for line in lines):
        own = [line for line in lines if (line["algorithm"], line["attack"]) == name]
        own = sorted((line for line in own if not isinstance(line["epsilon"], str)), key=_epsilon)
        for axes, (_, measure) in zip(panels, measures, strict=True):
            found = [(_epsilon(line), *value) for line in own if (value := measure(line))]
            if not found:
                continue
            x, values, lows, highs, best = (np.array(column) for column in zip(*found, strict=True))
            spread = np.stack([values - lows, highs - values])
            axes.errorbar(x, values, spread, marker="o", capsize=2, label=", ".join(name))
            axes.plot(x, best, "k--", lw=1)
    for axes, (label, _) in zip(panels, measures, strict=True):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0e}")
        axes.set_xlabel("epsilon (upper bound)")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7, title="dashed: best null row", title_fontsize=7)
    verbatim(sheet)
    return picture(sheet, "png")


def _epsilon(line: Mapping[str, Any]) -> float:
    return float(line["epsilon"])


def _measure(line: Mapping[str, Any], name: str) -> tuple[float, ...] | None:
    """Mean, interval and best null row of a measure; None where the attack makes no image."""
    if "scores" not in line:
        return None
    mean, low, high = line["scores"][name]
    ends = (mean, mean) if low is None else (low, high)
    return (mean, *ends, max(null[name][0] for null in line["nulls"].values()))


def _labels(line: Mapping[str, Any]) -> tuple[float, ...] | None:
    """Share of correct labels, its interval and null; None where none are inferred."""
    if "labels" not in line:
        return None
    return (*line["labels"]["correct"], line["labels"]["null"])
