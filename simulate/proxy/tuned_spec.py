"""The text of a spec with a tuned recipe, and with what it rests on in comments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from privplan.spec.training import TUNED
from privplan.yaml_text import Convert, edited, load_yaml
from simulate.proxy.search import PLANNED, Ranked, SearchResult

_SHOWN_RECIPES = 3  # of the last rung, in the comments; the evidence has all


def tuned_text(text: str, result: SearchResult, evidence: str) -> str:
    """The text of a spec with the best recipe.

    For ``planned`` the recipe is marked as tuned, with the values before, which
    baselines train with; for another algorithm its fields stand as given. Where it
    trains best with the fields of before, they stay, so that ``planned`` keeps its
    recipe.

    Args:
        text: of the spec.
        result: of the search.
        evidence: name of the file that has all trials.
    """
    data = load_yaml(text, "spec")
    comments = _comments(result, evidence)
    is_planned = result.evidence.algorithm == PLANNED
    if result.best is result.default and not is_planned:
        return with_fields(text, data, data, comments)
    recipe = result.best.recipe
    fields = {key: value for key, value in recipe.fields().items() if value is not None}
    fields["local"] = recipe.local(data)
    fields["recipe"] = {"source": "none"}
    if is_planned:
        decided = [key for key in TUNED if key in fields]
        before = {key: data[key] for key in decided if data.get(key) is not None}
        fields["recipe"] = {
            "source": "tuned",
            "decides": decided,
            "replaced": before,
        }
    untouched = {
        key: value for key, value in data.items() if key not in (*TUNED, "recipe")
    }
    return with_fields(text, data, {**untouched, **fields}, comments)


def _comments(result: SearchResult, evidence: str) -> list[str]:
    """What the recipe rests on, and the best recipes with their accuracy."""
    basis = result.evidence
    return [
        f"Tuned for {basis.algorithm} by {basis.runs} simulated runs on {basis.dataset} "
        f"({basis.partition}): public or proxy data only.",
        f"It holds at {basis.rounds} rounds and noise {basis.noise:.3g} in clipping "
        f"norms; more in {evidence}.",
        f"The last runs, accuracy in percent over {basis.seeds} seeds; best first, then "
        "as before:",
        *map(_comment, (*result.ranked[:_SHOWN_RECIPES], result.default)),
    ]


def _comment(ranked: Ranked) -> str:
    """A recipe with its accuracy in percent."""
    numbers = ranked.recipe.numbers().items()
    recipe = " ".join(f"{name}={value}" for name, value in numbers)
    return f"{100 * ranked.mean:.2f} +- {100 * ranked.sd:.2f}: {recipe}"


def with_fields(
    text: str, data: dict[str, Any], target: dict[str, Any], comments: Sequence[str]
) -> str:
    """A spec's text with other values of some top-level fields, at its end.

    Args:
        text: of the spec.
        data: what it says.
        target: what it shall say.
        comments: lines before the first field that changes, or before the whole text.
    """
    changed = [key for key in target if key not in data or target[key] != data[key]]
    if not changed and target == data:
        return "".join(f"# {line}\n" for line in comments) + text

    def edit(content: Any, convert: Convert) -> None:
        for key in data:
            if key not in target or key in changed:
                del content[key]
        for key in changed:
            content[key] = convert(target[key])
        content.yaml_set_comment_before_after_key(
            changed[0], before="\n" + "\n".join(comments)
        )

    return edited(text, edit, target, "spec").rstrip() + "\n"
