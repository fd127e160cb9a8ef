"""The report of attacks: rows scored against null rows, as tables, JSON and images."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privplan.accounting.accountant import at_most
from privplan.attacked import AttackRow, RunAttacks
from privplan.files import write_bytes, write_text
from simulate.attacks.guarantees import guarantee
from simulate.attacks.lpips import LEAST_SIDE, Lpips
from simulate.attacks.measures import (
    ANOTHER_IMAGE,
    better,
    candidates,
    clopper_pearson,
    null_scores,
    scores,
)
from simulate.attacks.sheet import contact_sheet
from simulate.attacks.sweep import Result


def summary(result: Result, seed: int, lpips: Lpips | None = None) -> dict[str, Any]:
    """One row of the report as plain data: scores of the attack and of its null rows.

    Args:
        result: of the attack.
        seed: of the candidates and of the null rows.
        lpips: the measure, where it is asked for.
    """
    attacked = result.case.attacked
    line: dict[str, Any] = {
        "algorithm": attacked.algorithm,
        "attack": result.case.attack,
        "releases": len(result.truths),
        **attacked.heads,
        **guarantee(
            attacked.algorithm,
            attacked.executed,
            attacked.target,
            attacked.noise_factor,
        ),
        "seconds": round(result.seconds, 1),
        "notes": list(result.notes),
    }
    if any(result.numbers):
        line["numbers"] = _mean_numbers(result)
    leaks: list[str] = []
    labels = _label_row(result)
    if labels is not None:
        line["labels"] = labels
        if labels["correct"][1] > labels["null"]:
            leaks.append("label")
    if result.images:
        originals = [truth.images for truth in result.truths]
        attacked_rows = np.concatenate([truth.rows for truth in result.truths])
        among = candidates(attacked.data, attacked_rows, seed)
        reached = scores(result.images, originals, among, lpips)
        nulls = null_scores(result.images, originals, among, seed, lpips)
        line["scores"] = reached.summary()
        line["nulls"] = {name: null.summary() for name, null in nulls.items()}
        leaks += better(reached, nulls)
    line["better_than_null"] = leaks
    line["verdict"] = "leaks" if leaks else "not above null"
    if not result.images and labels is None:
        if result.notes:
            line["verdict"] = result.notes[0]
        else:
            line["verdict"] = "no image, no label"
    return line


def _mean_numbers(result: Result) -> dict[str, float]:
    """Means of the further findings over the releases that have some."""
    named = [numbers for numbers in result.numbers if numbers]
    means = {}
    for name in named[0]:
        values = [numbers[name] for numbers in named if name in numbers]
        means[name] = float(np.mean(values))
    return means


def _label_row(result: Result) -> dict[str, Any] | None:
    """Share of correct labels, and that of the best attack that sees nothing.

    Such attacks guess another release's labels, equal shares, or the most frequent
    label.
    """
    labels = [label for label in result.labels if label is not None]
    if len(labels) < len(result.labels):
        return None
    truths = [truth.labels for truth in result.truths]
    hits, trials = _label_hits(labels, truths)
    classes = result.case.attacked.model.classes
    equal_shares = [torch.arange(len(label)) % classes for label in labels]
    null_hits, _ = _label_hits(equal_shares, truths)
    null = max(null_hits / trials, 1 / classes)
    if len(labels) > 1:
        null_hits, _ = _label_hits([*labels[1:], labels[0]], truths)
        constant_hits = 0
        for label in range(classes):
            constant = [torch.full_like(guess, label) for guess in labels]
            constant_hits = max(constant_hits, _label_hits(constant, truths)[0])
        null = max(null, null_hits / trials, constant_hits / trials)
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


def attacks_on_run(lines: Sequence[Mapping[str, Any]]) -> RunAttacks:
    """The rows of a run's attacks, for the file in its folder."""
    rows = []
    for line in lines:
        labels = line.get("labels")
        reached = line.get("scores")
        row = {
            "attack": line["attack"],
            "releases": line["releases"],
            "better": line["better_than_null"],
        }
        if labels is not None:
            row["labels"] = labels["correct"][0]
            row["labels_null"] = labels["null"]
        if reached is not None:
            row["psnr"] = reached["psnr"][0]
            row["psnr_null"] = max(null["psnr"][0] for null in line["nulls"].values())
            if "lpips" in reached:
                row["lpips"] = reached["lpips"][0]
                nulls = line["nulls"].values()
                row["lpips_null"] = min(null["lpips"][0] for null in nulls)
            row["identified"] = reached["identified"][0]
            row["chance"] = reached["chance"]
        rows.append(AttackRow(**row))
    return RunAttacks(rows=tuple(rows))


def to_json(value: Any) -> str:
    """Strict JSON text of plain data."""
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


JSON = "attacks.json"
TABLE = "attacks.md"
SHEET = "sheet.png"
_BEFORE_SCORES = ("algorithm", "attack", "clients", "sigma", "epsilon", "label")
_SCORES = {
    "psnr": ("PSNR (dB)", ".1f"),
    "ssim": ("SSIM", ".2f"),
    "lpips": ("LPIPS", ".3f"),
    "identified": ("re-identified", ".2f"),
}
"""Head and format of each measure."""


def _measures(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """The measures of a table; LPIPS only where a row has it."""
    measures = list(_SCORES)
    if not any("lpips" in line.get("scores", {}) for line in lines):
        measures.remove("lpips")
    return measures


def columns(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Heads of the table's columns."""
    heads = [_SCORES[measure][0] for measure in _measures(lines)]
    return [*_BEFORE_SCORES, *heads, "result"]


def table_rows(lines: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Cells of the table: each attack, its null of other updates; equal nulls once."""
    rows: list[list[str]] = []
    shown: set[tuple[Any, ...]] = set()
    measures = _measures(lines)
    for line in lines:
        nulls = line.get("nulls", {})
        for name, null in nulls.items():
            mark = (name, null["n"], str(null["psnr"]))
            if name != ANOTHER_IMAGE and mark not in shown:
                shown.add(mark)
                rows.append(
                    ["null", name, "", "", "", "", *_score_cells(null, measures), ""]
                )
        rows.append(_cells(line, measures))
        if ANOTHER_IMAGE in nulls:
            null_label = line.get("labels", {}).get("null")
            label = ""
            if null_label is not None:
                label = f"{null_label:.2f}"
            title = f"  null of {line['algorithm']}"
            cells = _score_cells(nulls[ANOTHER_IMAGE], measures)
            rows.append([title, ANOTHER_IMAGE, "", "", "", label, *cells, ""])
    return rows


def _cells(line: Mapping[str, Any], measures: Sequence[str]) -> list[str]:
    """The cells of an attack."""
    epsilon = line["epsilon"]
    if not isinstance(epsilon, str):
        epsilon = f"{at_most(epsilon, 3)}, {line['unit']}"
    label = ""
    if "labels" in line:
        label = f"{line['labels']['correct'][0]:.2f}"
    score_cells = [""] * len(measures)
    if "scores" in line:
        score_cells = _score_cells(line["scores"], measures)
    verdict = str(line["verdict"])
    if line["better_than_null"]:
        verdict += f": {', '.join(line['better_than_null'])}"
    return [
        str(line["algorithm"]),
        str(line["attack"]),
        str(line["clients"]),
        f"{line['noise_multiplier']:.3g}",
        epsilon,
        label,
        *score_cells,
        verdict,
    ]


def _score_cells(reached: Mapping[str, Any], measures: Sequence[str]) -> list[str]:
    """Means with their intervals."""
    cells = []
    for measure in measures:
        _, form = _SCORES[measure]
        value = reached.get(measure, "")
        if isinstance(value, str):
            cells.append(value)
        else:
            mean, low, high = value
            if low is None:
                ends = ""
            else:
                ends = f" [{low:{form}}, {high:{form}}]"
            cells.append(f"{mean:{form}}{ends}")
    return cells


def caption(lines: Sequence[Mapping[str, Any]]) -> str:
    """What intervals, results, re-identification and each epsilon of the table mean."""
    sentences = [
        "[low, high]: 95% intervals",
        "leaks: better than every null row by the named measure",
    ]
    chances = [line["scores"]["chance"] for line in lines if "scores" in line]
    if chances:
        ends = (f"{min(chances):.2g}", f"{max(chances):.2g}")
        chance = " to ".join(dict.fromkeys(ends))
        sentences.append(
            "re-identified: the original is the nearest of at most 1,000 candidates "
            f"(chance {chance})"
        )
    if "lpips" in _measures(lines):
        sentences.append(
            f"LPIPS: lower is nearer, images enlarged to at least {LEAST_SIDE} pixels"
        )
    return "; ".join([*sentences, *epsilons(lines)])


def epsilons(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each epsilon holds for: group, delta, law, relation and accountant."""
    names_by_law: dict[str, list[str]] = {}
    for line in lines:
        if "accountant" in line and line["epsilon"] != "inf":
            words = (
                f"over all rounds, group {line['group']}, delta {line['delta']:.3g}, "
                f"{line['sampling']} sampling, {line['relation']}, {line['accountant']}"
            )
            names_by_law.setdefault(words, []).append(str(line["algorithm"]))
    return [
        f"epsilon of {', '.join(dict.fromkeys(names))}: {words}"
        for words, names in names_by_law.items()
    ]


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
    attacks: Sequence[Mapping[str, Any]],
) -> tuple[str, Sequence[str], list[list[str]], str]:
    """Title, columns, rows and caption of the membership attack."""
    rows = []
    for attack in attacks:
        for score, levels in attack["scores"].items():
            rows += [_membership_cells(attack, score, level) for level in levels]
    note = (
        "TPR with its 95% Clopper-Pearson interval; above the certificate: the lower end "
        "is above the trade-off curve at the upper end of the false-positive rate's "
        "interval"
    )
    caption_ = "; ".join([note, *epsilons(attacks)])
    runs = attacks[0]["runs"] if attacks else 0
    return f"Membership, {runs} runs per algorithm", MEMBERSHIP_COLUMNS, rows, caption_


def _membership_cells(
    attack: Mapping[str, Any], score: str, level: Mapping[str, Any]
) -> list[str]:
    """The cells of a membership attack by a score, at a false-positive rate."""
    epsilon = attack["epsilon"]
    factor = attack["noise_factor"]
    rate, low, high = level["tpr"]
    verdict = "within the certificate"
    if epsilon == "inf":
        verdict = "no certificate"
    elif level["crosses"]:
        verdict = "above the certificate"
    return [
        attack["algorithm"],
        attack["unit"],
        epsilon if isinstance(epsilon, str) else at_most(epsilon, 3),
        "planned" if factor == 1 else f"{factor:g} of planned",
        score,
        f"{level['fpr']:g}",
        f"{rate:.3f} [{low:.3f}, {high:.3f}]",
        at_most(level["bound"]),
        f"{level['in']}, {level['out']}",
        verdict,
    ]


def write(
    folder: Path,
    title: str,
    header: Mapping[str, Any],
    lines: Sequence[Mapping[str, Any]],
    results: Sequence[Result],
) -> list[str]:
    """Write table, JSON and contact sheet; the names of the files."""
    write_text(folder / JSON, to_json({**header, "title": title, "rows": list(lines)}))
    tables: list[tuple[str, Sequence[str], list[list[str]], str]] = []
    if lines:
        tables.append((title, columns(lines), table_rows(lines), caption(lines)))
    if header["membership"]:
        tables.append(membership_table(header["membership"]))
    texts = []
    for name, heads, rows, note in tables:
        cells = [heads, ["---"] * len(heads), *rows]
        table = "".join(f"| {' | '.join(line)} |\n" for line in cells)
        texts.append(f"# {name}\n\n{table}\n{note}\n")
    write_text(folder / TABLE, "\n".join(texts))
    written = [TABLE, JSON]
    pictured = [result for result in results if result.images]
    if pictured:
        write_bytes(folder / SHEET, contact_sheet(pictured))
        written.append(SHEET)
    return written
