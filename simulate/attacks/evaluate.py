"""Attacks on several algorithms as one resumable sweep, scored beside null rows."""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privplan.sweeps import Journal, finish, in_jobs, key_of, resumable
from privplan.values import digest
from simulate.attacks.measures import (
    Scores,
    better,
    candidates,
    clopper_pearson,
    guarantee,
    null_scores,
    scores,
)
from simulate.attacks.settings import PlanScene, RunScene
from simulate.attacks.view import ATTACKS, Guess, Options, Truth

JOURNAL = "attacks.jsonl"
CHUNK = 10
"""Releases that are attacked at the same time."""
PARTS = 1000
"""Parts into which the progress of one chunk is divided."""

Scene = PlanScene | RunScene


@dataclass(frozen=True)
class Case:
    """An attack on the releases of one scene.

    Attributes:
        attack: name of the attack.
        scene: where the releases come from.
    """

    attack: str
    scene: Scene

    @property
    def identity(self) -> dict[str, Any]:
        """What distinguishes the case in one sweep, as plain data."""
        scene = self.scene
        if isinstance(scene, RunScene):
            return {"attack": self.attack, "round": scene.round}
        return {
            "attack": self.attack,
            "algorithm": scene.algorithm,
            "clients": scene.clients,
            "local_steps": scene.steps,
            "noise_factor": scene.noise_factor,
        }

    @property
    def algorithm(self) -> str:
        """Name of the attacked algorithm."""
        scene = self.scene
        return scene.algorithm if isinstance(scene, PlanScene) else scene.record.algorithm


@dataclass(frozen=True)
class Result:
    """An attack on all releases of a scene.

    Attributes:
        case: the attack and the scene.
        images: reconstructions per release [n, ...]; empty when the attack makes none.
        truths: the records per release.
        labels: inferred labels per release, or None each.
        numbers: further findings per release.
        notes: distinct reasons why nothing was found.
        seconds: time of the attack.
    """

    case: Case
    images: tuple[Tensor, ...]
    truths: tuple[Truth, ...]
    labels: tuple[Tensor | None, ...]
    numbers: tuple[Mapping[str, float], ...]
    notes: tuple[str, ...]
    seconds: float


def sweep(
    cases: Sequence[Case],
    options: Options,
    folder: Path | None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Result]:
    """Run attacks; chunks that are finished in the folder's journal are not computed again."""
    items = {
        key_of({**case.identity, "releases": [first, last]}): (case, first, last)
        for case in cases
        for first, last in _chunks(len(case.scene))
    }
    finished = 0

    def outer(done: int, total: int) -> None:
        nonlocal finished
        finished = done
        progress(done * PARTS, total * PARTS)

    def inner(done: int, total: int) -> None:
        progress(finished * PARTS + PARTS * done // max(1, total), len(items) * PARTS)

    def work(item: tuple[Case, int, int]) -> dict[str, Any]:
        return _attacked(item, options, inner)

    with resumable(folder):
        name = _identity(cases, options)
        path = None if folder is None else folder / JOURNAL
        journal = None if path is None else Journal[dict[str, Any]](path, name, _check)
        found = finish(items, work, spread=in_jobs(1), journal=journal, progress=outer)
    return [_collected(case, found) for case in cases]


def _chunks(total: int) -> Iterator[tuple[int, int]]:
    yield from ((first, min(first + CHUNK, total)) for first in range(0, total, CHUNK))


def _identity(cases: Sequence[Case], options: Options) -> str:
    """Digest of everything that the results depend on besides the case."""
    scene = cases[0].scene
    if isinstance(scene, RunScene):
        origin: dict[str, Any] = {"chain": scene.record.chain, "plan": scene.record.plan_digest}
    else:
        origin = {
            "plan": scene.plan.digest,
            "data": scene.data.digest,
            "seed": scene.seed,
            "choices": [scene.hyperparameters.aggregation, dict(scene.hyperparameters.values)],
            "images": scene.images,
        }
    return digest({**origin, "options": asdict(options)})


def _check(point: Any, result: Any) -> None:
    if not isinstance(point, dict) or not isinstance(result["guesses"], list):
        raise TypeError("no chunk of a sweep of attacks")
    for guess in result["guesses"]:
        images = guess["images"]
        if images is not None:
            held = len(base64.b64decode(images["float32"], validate=True))
            if held != 4 * math.prod(images["shape"]):
                raise ValueError("pixels and shape differ")
        if not {"labels", "numbers", "note"} <= guess.keys() or "seconds" not in result:
            raise TypeError("no guess of an attack")


def _attacked(
    item: tuple[Case, int, int], options: Options, progress: Callable[[int, int], None]
) -> dict[str, Any]:
    """Result of one chunk as plain data."""
    case, first, last = item
    views = [case.scene[index].view for index in range(first, last)]
    own = replace(options, seed=options.seed + first)
    threads = torch.get_num_threads()
    started = time.monotonic()
    guesses = ATTACKS.get(case.attack).reconstruct(views, own, progress)
    torch.set_num_threads(threads)
    return {
        "guesses": [_plain(guess) for guess in guesses],
        "seconds": round(time.monotonic() - started, 3),
    }


def _plain(guess: Guess) -> dict[str, Any]:
    images = None
    if guess.images is not None:
        values = guess.images.detach().cpu().float().contiguous()
        encoded = base64.b64encode(values.numpy().astype("<f4").tobytes()).decode()
        images = {"shape": list(values.shape), "float32": encoded}
    return {
        "images": images,
        "labels": None if guess.labels is None else guess.labels.cpu().tolist(),
        "numbers": {name: float(value) for name, value in guess.numbers.items()},
        "note": guess.note,
    }


def _images(plain: dict[str, Any]) -> Tensor:
    values = np.frombuffer(base64.b64decode(plain["float32"]), dtype="<f4").copy()
    return torch.from_numpy(values).view(*plain["shape"])


def _collected(case: Case, found: Mapping[str, dict[str, Any]]) -> Result:
    chunks = [
        found[key_of({**case.identity, "releases": [first, last]})]
        for first, last in _chunks(len(case.scene))
    ]
    guesses = [guess for chunk in chunks for guess in chunk["guesses"]]
    images = [None if one["images"] is None else _images(one["images"]) for one in guesses]
    complete = all(image is not None for image in images)
    return Result(
        case,
        tuple(image for image in images if image is not None) if complete else (),
        tuple(case.scene.truth(index) for index in range(len(guesses))),
        tuple(None if one["labels"] is None else torch.tensor(one["labels"]) for one in guesses),
        tuple(one["numbers"] for one in guesses),
        tuple(dict.fromkeys(one["note"] for one in guesses if one["note"])),
        sum(chunk["seconds"] for chunk in chunks),
    )


def summary(result: Result, seed: int) -> dict[str, Any]:
    """One row of the report as plain data: the attack's scores and those of its null rows."""
    case, scene = result.case, result.case.scene
    factor = scene.noise_factor if isinstance(scene, PlanScene) else 1.0
    line: dict[str, Any] = {
        "algorithm": case.algorithm,
        "attack": case.attack,
        "releases": len(result.truths),
        **_setting(scene),
        **guarantee(case.algorithm, scene.executed, scene.target, factor),
        "seconds": round(result.seconds, 1),
        "notes": list(result.notes),
    }
    named = [value for value in result.numbers if value]
    if named:
        line["numbers"] = {
            name: float(np.mean([one[name] for one in named if name in one])) for name in named[0]
        }
    labels = _label_row(result)
    if labels is not None:
        line["labels"] = labels
    found: list[str] = []
    if labels is not None and labels["correct"][1] > labels["null"]:
        found.append("label")
    if result.images:
        attacked, nulls = _scored(result, seed)
        line["scores"] = attacked.summary()
        line["nulls"] = {name: null.summary() for name, null in nulls.items()}
        found += better(attacked, nulls)
        line["without_vanished"] = _without_vanished(result, seed)
    line["better_than_null"] = found
    line["verdict"] = _verdict(result, found, labels)
    return line


def _verdict(result: Result, found: list[str], labels: dict[str, Any] | None) -> str:
    if not result.images and labels is None:
        return result.notes[0] if result.notes else "no image, no label"
    return "leaks" if found else "not above null"


def _setting(scene: Scene) -> dict[str, Any]:
    if isinstance(scene, RunScene):
        views = [scene[index].view for index in range(len(scene))]
        clients, records = [view.clients for view in views], [view.records for view in views]
        return {
            "clients": min(clients),
            "clients_most": max(clients),
            "records": min(records),
            "records_most": max(records),
            "local_steps": views[0].steps,
            "round": scene.round,
            "groups": [group.name for group in scene.groups],
        }
    return {
        "clients": scene.clients,
        "records": scene.clients,
        "local_steps": scene.steps,
        "round": 1,
        "groups": [scene.target.name],
    }


def _label_row(result: Result) -> dict[str, Any] | None:
    """Share of correctly inferred labels, and the best null.

    Nulls: labels of another release, as many of each class, and always the most frequent class,
    which for one record per release is the best blind guess.
    """
    if any(one is None for one in result.labels):
        return None
    labels = [one for one in result.labels if one is not None]
    truths = [truth.labels for truth in result.truths]
    hits, trials = _label_hits(labels, truths)
    blind = [_balanced(len(label), result.case.scene) for label in labels]
    guesses = [blind] if len(labels) == 1 else [blind, [*labels[1:], labels[0]]]
    null = max(_label_hits(guess, truths)[0] for guess in guesses) / trials
    null = max(null, 1 / result.case.scene.experiment.model.classes)
    if len(labels) > 1:
        null = max(null, float(torch.cat(truths).bincount().max()) / trials)
    return {"correct": [hits / trials, *clopper_pearson(hits, trials)], "n": trials, "null": null}


def _balanced(count: int, scene: Scene) -> Tensor:
    """As many labels of each class as of every other, a guess that needs no release."""
    return torch.arange(count) % scene.experiment.model.classes


def _label_hits(labels: Sequence[Tensor], truths: Sequence[Tensor]) -> tuple[int, int]:
    """Labels that are right, as a multiset per release, and all labels."""
    hits = 0
    for guess, truth in zip(labels, truths, strict=True):
        size = 1 + int(max(guess.max(), truth.max()))
        common = torch.minimum(guess.bincount(minlength=size), truth.bincount(minlength=size))
        hits += int(common.sum())
    return hits, sum(len(guess) for guess in labels)


def _scored(result: Result, seed: int) -> tuple[Scores, dict[str, Scores]]:
    scene = result.case.scene
    originals = [truth.images for truth in result.truths]
    exclude = np.concatenate([truth.rows for truth in result.truths])
    among = candidates(scene.experiment.data, exclude, seed)
    return scores(result.images, originals, among), null_scores(
        result.images, originals, among, seed
    )


def _without_vanished(result: Result, seed: int) -> dict[str, Any] | None:
    """Scores of the releases whose gradient did not vanish; None where none can vanish."""
    flags = [one.get("vanished") for one in result.numbers]
    if any(flag is None for flag in flags):
        return None
    kept = [index for index, flag in enumerate(flags) if not flag]
    line: dict[str, Any] = {"vanished": len(flags) - len(kept), "of": len(flags)}
    if kept:
        part = replace(
            result,
            images=tuple(result.images[index] for index in kept),
            truths=tuple(result.truths[index] for index in kept),
        )
        line["scores"] = _scored(part, seed)[0].summary()
    return line


def to_json(value: Any) -> str:
    """Strict JSON text of plain data."""
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


# --- How far the noise must fall until an attack succeeds. ---------------------------------------
#
# Per attack the noise multiplier falls from the planned one by half an order of magnitude at a
# time, and each level has the epsilon that this multiplier would spend. An attack breaks a level
# where it is better than every null row there and at the next level: one level could be chance.

LEVELS = tuple(10.0 ** (-step / 2) for step in range(13))
"""Factors on the planned noise multiplier, from 1 to 1e-6."""


@dataclass(frozen=True)
class Sweep:
    """Results of a sweep of the noise.

    Attributes:
        results: attacks, one per level.
        lines: their rows of the report.
        breaks: per attack ``algorithm``, ``attack``, and the first broken and the last unbroken
            level above it, each with noise multiplier and epsilon, or None; and the verdict at
            the planned noise.
    """

    results: list[Result]
    lines: list[dict[str, Any]]
    breaks: list[dict[str, Any]]


def noise_sweep(
    cases: Sequence[Case],
    options: Options,
    seed: int,
    folder: Path | None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Sweep:
    """Attack with less and less noise, until an attack succeeds at two levels."""
    total = len(cases) * len(LEVELS) * PARTS
    found = Sweep([], [], [])
    for index, case in enumerate(cases):
        own: list[dict[str, Any]] = []
        for level, factor in enumerate(LEVELS):
            start = (index * len(LEVELS) + level) * PARTS

            def part(done: int, of: int, start: int = start) -> None:
                progress(start + PARTS * done // max(1, of), total)

            [result] = sweep([_at(case, factor)], options, folder, part)
            found.results.append(result)
            own.append(summary(result, seed))
            last = own[-1]
            if not last["noise_multiplier"] or not _tried(last) or _first_broken(own) is not None:
                break
        found.lines.extend(own)
        found.breaks.append(_breaks(own))
        progress((index + 1) * len(LEVELS) * PARTS, total)
    return found


def _at(case: Case, factor: float) -> Case:
    scene = case.scene
    if isinstance(scene, PlanScene):
        return replace(case, scene=replace(scene, noise_factor=scene.noise_factor * factor))
    return case


def _tried(line: Mapping[str, Any]) -> bool:
    """Whether the attack returned images or labels."""
    return "scores" in line or "labels" in line


def _first_broken(lines: Sequence[Mapping[str, Any]]) -> int | None:
    """Index of the first of two successive levels at which the attack is better than null."""
    for index in range(len(lines) - 1):
        if lines[index]["better_than_null"] and lines[index + 1]["better_than_null"]:
            return index
    return None


def _breaks(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Where an attack begins to succeed, as plain data."""
    first = lines[0]
    broken = _first_broken(lines)
    if first["noise_multiplier"] == 0 and first["better_than_null"]:
        broken = 0
    below = len(lines) if broken is None else broken
    return {
        "algorithm": first["algorithm"],
        "attack": first["attack"],
        "clients": first["clients"],
        "breaks_at": None if broken is None else _level(lines[broken]),
        "holds_at": _level(lines[below - 1]) if below and _tried(first) else None,
        "verdict": first["verdict"],
    }


def _level(line: Mapping[str, Any]) -> dict[str, Any]:
    names = ("noise_multiplier", "epsilon", "unit", "better_than_null")
    return {name: line[name] for name in names}


def sentence(found: Mapping[str, Any]) -> str:
    """One line that says at which noise an attack begins to succeed."""
    broken, holds = found["breaks_at"], found["holds_at"]
    who = f"{found['algorithm']}, {found['attack']}"
    parts = [] if broken or holds else [str(found["verdict"])]
    if broken is not None:
        by = ", ".join(broken["better_than_null"])
        parts.append(f"better than null from {_words(broken)} down ({by})")
    if holds is not None:
        parts.append(f"not above null at {_words(holds)}")
    return f"{who}: {'; '.join(parts)}"


def _words(level: Mapping[str, Any]) -> str:
    epsilon = level["epsilon"]
    text = epsilon if isinstance(epsilon, str) else f"{epsilon:.3g}"
    return f"sigma {level['noise_multiplier']:.3g} (epsilon {text})"
