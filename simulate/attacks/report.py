"""Attacks on algorithms, scored against null rows, and their report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privplan.accounting.accountant import at_most
from privplan.files import write_bytes, write_text
from privplan.report.style import Panel, Theme, picture
from simulate.attacks.measures import (
    OTHER,
    better,
    candidates,
    clopper_pearson,
    guarantee,
    matched,
    null_scores,
    psnr,
    scores,
)
from simulate.attacks.settings import PlanRound
from simulate.attacks.view import ATTACKS, Guess, Options, Truth

CHUNK = 10  # releases that are attacked at the same time
PARTS = 1000  # parts into which the progress of one chunk is divided


@dataclass(frozen=True)
class Case:
    """An attack, by its name, on the releases of one round."""

    attack: str
    attacked: PlanRound


@dataclass(frozen=True)
class Result:
    """An attack on all releases of a round."""

    case: Case  # the attack and the round
    # reconstructions per release [n, ...]; empty when the attack makes none
    images: tuple[Tensor, ...]
    truths: tuple[Truth, ...]  # the records per release
    labels: tuple[Tensor | None, ...]  # inferred labels per release, or None each
    numbers: tuple[Mapping[str, float], ...]  # further findings per release
    notes: tuple[str, ...]  # distinct reasons why nothing was found
    seconds: float  # time of the attack


def sweep(
    cases: Sequence[Case],
    options: Options,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Result]:
    """Run attacks, on few releases at a time."""
    finished, total = 0, sum(-(-len(case.attacked) // CHUNK) for case in cases)

    def inner(done: int, steps: int) -> None:
        progress(finished * PARTS + PARTS * done // max(1, steps), total * PARTS)

    results = []
    for case in cases:
        guesses: list[Guess] = []
        started, count = time.monotonic(), len(case.attacked)
        for first in range(0, count, CHUNK):
            views = [
                case.attacked[index].view
                for index in range(first, min(first + CHUNK, count))
            ]
            own = replace(options, seed=options.seed + first)
            threads = torch.get_num_threads()
            guesses += ATTACKS.get(case.attack).reconstruct(views, own, inner)
            torch.set_num_threads(threads)
            finished += 1
            progress(finished * PARTS, total * PARTS)
        found = (one.images for one in guesses if one.images is not None)
        images = tuple(one.detach().cpu().float() for one in found)
        result = Result(
            case,
            images if len(images) == len(guesses) else (),
            tuple(case.attacked.truth(index) for index in range(count)),
            tuple(None if one.labels is None else one.labels.cpu() for one in guesses),
            tuple(one.numbers for one in guesses),
            tuple(dict.fromkeys(one.note for one in guesses if one.note)),
            time.monotonic() - started,
        )
        results.append(result)
    return results


def summary(result: Result, seed: int) -> dict[str, Any]:
    """One row of the report as plain data: the attack's scores and those of its null rows."""
    case, attacked = result.case, result.case.attacked
    line: dict[str, Any] = {
        "algorithm": attacked.algorithm,
        "attack": case.attack,
        "releases": len(result.truths),
        "clients": attacked.clients,
        "records": attacked.clients,
        "round": 1,
        "groups": [attacked.target.name],
        **guarantee(
            attacked.algorithm,
            attacked.executed,
            attacked.target,
            attacked.noise_factor,
        ),
        "seconds": round(result.seconds, 1),
        "notes": list(result.notes),
    }
    named = [value for value in result.numbers if value]
    if named:
        line["numbers"] = {
            name: float(np.mean([one[name] for one in named if name in one]))
            for name in named[0]
        }
    found: list[str] = []
    labels = _label_row(result)
    if labels is not None:
        line["labels"] = labels
        if labels["correct"][1] > labels["null"]:
            found.append("label")
    if result.images:
        originals = [truth.images for truth in result.truths]
        exclude = np.concatenate([truth.rows for truth in result.truths])
        among = candidates(attacked.experiment.data, exclude, seed)
        reached = scores(result.images, originals, among)
        nulls = null_scores(result.images, originals, among, seed)
        line["scores"] = reached.summary()
        line["nulls"] = {name: null.summary() for name, null in nulls.items()}
        found += better(reached, nulls)
    line["better_than_null"] = found
    line["verdict"] = "leaks" if found else "not above null"
    if not result.images and labels is None:
        line["verdict"] = result.notes[0] if result.notes else "no image, no label"
    return line


def _label_row(result: Result) -> dict[str, Any] | None:
    """Share of correct labels; the best null: another release's, equal shares, most frequent."""
    labels = [one for one in result.labels if one is not None]
    if len(labels) < len(result.labels):
        return None
    truths = [truth.labels for truth in result.truths]
    hits, trials = _label_hits(labels, truths)
    classes = result.case.attacked.experiment.model.classes
    blind = [torch.arange(len(label)) % classes for label in labels]
    guesses = [blind] if len(labels) == 1 else [blind, [*labels[1:], labels[0]]]
    null = max(_label_hits(guess, truths)[0] for guess in guesses) / trials
    null = max(null, 1 / classes)
    if len(labels) > 1:
        null = max(null, float(torch.cat(truths).bincount().max()) / trials)
    return {
        "correct": [hits / trials, *clopper_pearson(hits, trials)],
        "n": trials,
        "null": null,
    }


def _label_hits(labels: Sequence[Tensor], truths: Sequence[Tensor]) -> tuple[int, int]:
    """Labels that are right, as a multiset per release, and all labels."""
    hits = 0
    for guess, truth in zip(labels, truths, strict=True):
        size = 1 + int(max(guess.max(), truth.max()))
        common = torch.minimum(
            guess.bincount(minlength=size), truth.bincount(minlength=size)
        )
        hits += int(common.sum())
    return hits, sum(len(guess) for guess in labels)


def to_json(value: Any) -> str:
    """Strict JSON text of plain data."""
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


# --- The report: tables, JSON and contact sheet. -------------------------------------------------

JSON = "attacks.json"
TABLE = "attacks.md"
SHEET = "sheet.png"
COLUMNS = (
    "algorithm", "attack", "clients", "sigma", "epsilon", "label", "PSNR (dB)", "SSIM",
    "re-identified", "result",
)  # fmt: skip
SHOWN = 10  # most images per row of the contact sheet


def table_rows(lines: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Cells of the table: each attack and its null from other updates; equal nulls once."""
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
            rows.append(
                [f"  null of {line['algorithm']}", OTHER, "", "", "", label, *cells, ""]
            )
    return rows


def _cells(line: Mapping[str, Any]) -> list[str]:
    epsilon, labels, reached = line["epsilon"], line.get("labels"), line.get("scores")
    found = line["better_than_null"]
    return [
        str(line["algorithm"]),
        str(line["attack"]),
        str(line["clients"]),
        f"{line['noise_multiplier']:.3g}",
        epsilon
        if isinstance(epsilon, str)
        else f"{at_most(epsilon, 3)}, {line['unit']}",
        "" if labels is None else f"{labels['correct'][0]:.2f}",
        *(_score_cells(reached) if reached else ["", "", ""]),
        f"{line['verdict']}: {', '.join(found)}" if found else str(line["verdict"]),
    ]


def _score_cells(reached: Mapping[str, Any]) -> list[str]:
    cells = []
    for name, form in (("psnr", ".1f"), ("ssim", ".2f"), ("identified", ".2f")):
        value = reached[name]
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
    chance = " to ".join(
        dict.fromkeys(f"{f(chances):.2g}" for f in (min, max) if chances)
    )
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
        f"epsilon of {', '.join(dict.fromkeys(names))}: {words}"
        for words, names in found.items()
    ]


MEMBERSHIP_COLUMNS = (
    "algorithm", "unit", "epsilon", "noise", "score", "FPR", "TPR", "certificate allows", "in, out",
    "result",
)  # fmt: skip


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
                        epsilon if isinstance(epsilon, str) else at_most(epsilon, 3),
                        "planned" if factor == 1 else f"{factor:g} of planned",
                        score,
                        f"{line['fpr']:g}",
                        f"{rate:.3f} [{low:.3f}, {high:.3f}]",
                        at_most(line["bound"]),
                        f"{line['in']}, {line['out']}",
                        "no certificate"
                        if epsilon == "inf"
                        else f"{'above' if line['crosses'] else 'within'} the certificate",
                    ]
                )
    note = (
        "TPR with its 95% Clopper-Pearson interval; above the certificate: the lower end is above "
        "the trade-off curve at the upper end of the false-positive rate's interval"
    )
    note = "; ".join([note, *epsilons(found)])
    runs = found[0]["runs"] if found else 0
    return f"Membership, {runs} runs per algorithm", MEMBERSHIP_COLUMNS, rows, note


def write(
    folder: Path,
    title: str,
    header: Mapping[str, Any],
    lines: Sequence[Mapping[str, Any]],
    results: Sequence[Result],
) -> list[str]:
    """Write table, JSON and contact sheet."""
    write_text(folder / JSON, to_json({**header, "title": title, "rows": list(lines)}))
    tables: list[tuple[str, Sequence[str], list[list[str]], str]] = []
    if lines:
        tables.append((title, COLUMNS, table_rows(lines), caption(lines)))
    if header["membership"]:
        tables.append(membership_table(header["membership"]))
    texts = []
    for name, columns, rows, note in tables:
        cells = [columns, ["---"] * len(columns), *rows]
        table = "".join(f"| {' | '.join(line)} |\n" for line in cells)
        texts.append(f"# {name}\n\n{table}\n{note}\n")
    write_text(folder / TABLE, "\n".join(texts))
    written = [TABLE, JSON]
    pictured = [result for result in results if result.images]
    if pictured:
        write_bytes(folder / SHEET, contact_sheet(pictured))
        written.append(SHEET)
    return written


def contact_sheet(results: Sequence[Result]) -> bytes:
    """PNG: originals, reconstructions, and the null of another update (blank if there is none)."""
    panels = []
    for number, result in enumerate(results):
        strip = _strip(result)
        found = [psnr(torch.stack(row), torch.stack(strip[0])) for row in strip[1:]]
        said = ", ".join(f"{value:.1f}" for value in found[0])
        alt = f"Reconstructions by {_name(result)}, PSNR in dB: {said}."
        draw = partial(_images, strip, found)
        panels.append(Panel(f"images-{number}", _name(result), alt, draw, 1.85))
    return picture(panels, "png", columns=1 if len(panels) < 3 else 2)


def _images(
    strip: tuple[list[Tensor], ...],
    found: Sequence[np.ndarray],
    axes: Any,
    theme: Theme,
) -> None:
    """Rows of images, with the PSNR to the original below a reconstruction or a null."""
    step = 1.45
    for row, images in enumerate(strip):
        tiles = np.concatenate([image.permute(1, 2, 0).numpy() for image in images], 1)
        place = (0, len(images), -step * row - 1, -step * row)
        axes.imshow(
            tiles, cmap="gray", vmin=0, vmax=1, interpolation="nearest", extent=place
        )
        for column, value in enumerate(found[row - 1] if row else ()):
            if torch.any(images[column] != 1):  # not the blank null of a single release
                said = f"{value:.0f}" if value >= 99.95 else f"{value:.1f}"
                axes.text(column + 0.5, place[2] - 0.06, said, ha="center", va="top",
                          fontsize=8, color=theme.ink)  # fmt: skip
    axes.vlines(range(1, SHOWN), -2 * step - 1, 0, color=theme.ground, lw=2)
    axes.set(xlim=(0, SHOWN), ylim=(-2 * step - 1.5, 0.05), aspect="equal", xticks=[])
    rows = ("original", "reconstruction,\nPSNR (dB)", "null,\nPSNR (dB)")
    axes.set_yticks([-step * row - 0.5 for row in range(3)], rows)
    axes.tick_params(axis="y", length=0, labelcolor=theme.ink)
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)


def _name(result: Result) -> str:
    attacked = result.case.attacked
    name = f"{attacked.algorithm}, {result.case.attack}"
    if attacked.clients > 1:
        name += f", sum of {attacked.clients} clients"
    if attacked.noise_factor != 1.0:
        name += f", {attacked.noise_factor:g} of the planned noise"
    return name


def _strip(result: Result) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Originals, reconstructions and reconstructions from the next release's update."""
    alone = len(result.images) == 1
    others = [
        *result.images[1:],
        result.images[0] * 0 + 1 if alone else result.images[0],
    ]
    rows: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])
    for found, truth, other in zip(result.images, result.truths, others, strict=True):
        if len(rows[0]) >= SHOWN:
            break
        for row, images in zip(
            rows, (matched(found, truth.images), found, other), strict=True
        ):
            row.extend(images[: SHOWN - len(row)])
    return rows
