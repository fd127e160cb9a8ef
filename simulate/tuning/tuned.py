"""The text of a spec with what tuning or pretraining found; comments stay where they can."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import fmean
from typing import Any

import yaml

from privplan.io.text import load_yaml
from privplan.spec.recipe import TUNED
from simulate.tuning.pretraining import Pretrained, with_initial
from simulate.tuning.search import PLANNED, Found, Ranked

REPLACED = (*TUNED, "recipe")
"""Top-level fields that a tuned recipe writes."""


def tuned_data(data: dict[str, Any], found: Found, algorithm: str) -> dict[str, Any]:
    """A spec's plain data with the best recipe.

    For ``planned`` the recipe is marked as tuned, with its evidence and the values before, which
    baselines train with; for another algorithm its fields stand as given, with the evidence. Where
    it trains best with the fields of before, they stay, so that ``planned`` keeps its recipe.

    Args:
        data: plain data of the spec.
        found: the result of the search.
        algorithm: the algorithm that was tuned.
    """
    best = found.best.recipe
    if algorithm != PLANNED and found.best is found.default:
        return data
    fields = {key: value for key, value in best.fields().items() if value is not None}
    fields["local"] = best.local(data)
    evidence = found.evidence.model_dump(mode="json")
    fields["recipe"] = {"source": "none", "evidence": evidence}
    if algorithm == PLANNED:
        decided = [key for key in TUNED if key in fields]
        fields["recipe"] = {
            "source": "tuned",
            "decides": decided,
            "replaced": {key: data[key] for key in decided if data.get(key) is not None},
            "evidence": evidence,
        }
    return {**{key: value for key, value in data.items() if key not in REPLACED}, **fields}


def tuned_text(text: str, found: Found, algorithm: str) -> str:
    """The text of a spec with the best recipe.

    Args:
        text: YAML of the spec.
        found: the result of the search.
        algorithm: the algorithm that was tuned.
    """
    wanted = tuned_data(load_yaml(text, "spec"), found, algorithm)
    rows = [
        f"# Tuned for {algorithm} by {found.evidence.runs} simulated runs on "
        f"{found.evidence.dataset} ({found.evidence.partition}): public or proxy data only.",
        "# The last runs, accuracy in percent over "
        f"{found.evidence.seeds} seeds; best first, then as before:",
        *(f"# {_row(one)}" for one in (*found.ranked[:3], found.default)),
    ]
    if wanted == load_yaml(text, "spec"):
        return "\n".join(rows) + "\n" + text
    return with_fields(text, wanted, REPLACED, rows)


def with_fields(
    text: str, wanted: dict[str, Any], fields: Collection[str], comments: Sequence[str]
) -> str:
    """The text of a spec with other values of some top-level fields, at its end.

    Args:
        text: YAML of the spec.
        wanted: plain data of the result.
        fields: the fields that differ.
        comments: lines before the fields.
    """
    own = {key: wanted[key] for key in fields if key in wanted}
    block = "\n".join(comments) + "\n" + yaml.safe_dump(own, sort_keys=False, width=100)
    edited = _without(text, fields)
    if edited is not None:
        edited = f"{edited.rstrip()}\n\n{block}"
        if load_yaml(edited, "spec") == wanted:
            return edited
    rest = {key: value for key, value in wanted.items() if key not in fields}
    return yaml.safe_dump(rest, sort_keys=False, width=100) + "\n" + block


def _row(one: Ranked) -> str:
    recipe = " ".join(f"{name}={value}" for name, value in one.recipe.numbers().items())
    return f"{100 * one.mean:.2f} +- {100 * one.sd:.2f}: {recipe}"


def _without(text: str, fields: Collection[str]) -> str | None:
    """The text without the fields that are replaced; None where it cannot be edited in place."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        return None
    lines, gone = text.splitlines(), set[int]()
    for key, value in root.value:
        if key.value in fields:
            last = value.end_mark.line
            block = isinstance(value, yaml.CollectionNode) and not value.flow_style
            gone |= set(range(key.start_mark.line, last if block else last + 1))
    return "\n".join(line for number, line in enumerate(lines) if number not in gone)


def pretrained_text(text: str, found: Pretrained) -> str:
    """The text of a spec with initial parameters; as it was where they are not kept.

    Args:
        text: YAML of the spec.
        found: the parameters.
    """
    rows = ["# Initial parameters: public or proxy data only."]
    if found.warm:
        warm, cold = (100 * fmean(scores) for scores in (found.warm, found.cold))
        rows.append(
            "# On classes of the public data that they were not trained on, mean accuracy of "
            f"{len(found.warm)} seeds in percent:\n# {warm:.2f}, from random parameters "
            f"{cold:.2f}; standard error of the gain {100 * found.error:.2f}."
        )
    if found.initial is None:
        return "\n".join([*rows, "# So they are not used.", text])
    wanted = with_initial(load_yaml(text, "spec"), found.initial)
    return with_fields(text, wanted, ("model",), rows)
