"""Measured constants into the text of a spec: values with their intervals, comments kept.

A pilot on public or proxy data hands back ``Measured``. The text of the spec is edited where
the values belong; everything else stays as a person wrote it. What the edited text says is
checked against what it should say before it is handed out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from privplan.files import load_yaml
from privplan.spec.spec import Spec
from privplan.values import Value

_WIDTH = 100


class Number(Value):
    """A measured number.

    Attributes:
        value: the estimate.
        low: lower end of its interval of 95%.
        high: upper end.
    """

    value: float
    low: float
    high: float


class Measured(Value):
    """The constants of planning as a pilot found them.

    Attributes:
        source: rounds, clients, data set, partition and seed.
        update_norm: root mean square of a client's update norm.
        update_norms: quantiles of the update norms, at even levels.
        update_coherence: norm of the mean update over the mean norm.
        heterogeneity: h, how much the mean updates of groups differ, in norm.
        smoothness: largest curvature L of the mean objective.
        noise_curvature: mean curvature in isotropic directions.
        sampling_curvature: mean curvature along the scatter of the clients' updates.
        initial_gap: loss at the beginning, at least f(theta^0) - f* as no loss is negative.
        local_variance: zeta^2, variance of a coordinate of a client's mini-batch gradient.
        dissimilarity: kappa^2, squared distance of clients' gradients from their mean.
    """

    source: str
    update_norm: Number
    update_norms: tuple[float, ...]
    update_coherence: Number
    heterogeneity: Number
    smoothness: Number
    noise_curvature: Number
    sampling_curvature: Number
    initial_gap: Number
    local_variance: Number
    dissimilarity: Number

    @property
    def numbers(self) -> dict[str, Number]:
        """Every constant that is one number, by name."""
        found = ((name, getattr(self, name)) for name in type(self).model_fields)
        return {name: value for name, value in found if isinstance(value, Number)}


def entries(measured: Measured) -> dict[str, Any]:
    """What goes under ``planning``, as plain data.

    h and the coherence are written at the upper end of their intervals: both are insurance, a
    price on weights other than the population's and on clipping, and too small a price is the
    worse mistake. A curvature whose estimate is not positive is written at its upper end too.
    """
    one = measured
    return {
        "update_norm": _shown(one.update_norm.value),
        "update_norms": [_shown(norm) for norm in one.update_norms],
        "update_coherence": min(_shown(one.update_coherence.high), 1.0),
        "heterogeneity": _shown(one.heterogeneity.high),
        "constants": {
            "smoothness": _shown(one.smoothness.value),
            "noise_curvature": _shown(_positive(one.noise_curvature)),
            "sampling_curvature": _shown(_positive(one.sampling_curvature)),
            "initial_gap": _shown(one.initial_gap.value),
            "local_variance": _shown(max(one.local_variance.value, 0.0)),
            "dissimilarity": _shown(max(one.dissimilarity.value, 0.0)),
        },
    }


def written(text: str, measured: Measured) -> str:
    """The text of a spec with the measured constants.

    Args:
        text: YAML of a spec.
        measured: the constants.

    Returns:
        YAML that ``Spec.parse`` accepts. Comments stay, except between the lines that are
        replaced; where the text cannot be edited in place (``planning`` in braces with fields,
        anchors) its data are written anew and the old text follows as a comment.

    Raises:
        InputError: when the text is not YAML.
    """
    wanted = _merged(load_yaml(text, "spec"), measured)
    edited = _edited(text, measured)
    if edited is None or load_yaml(edited, "spec") != wanted:
        old = "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())
        rest = {key: value for key, value in wanted.items() if key != "planning"}
        own = {k: v for k, v in wanted["planning"].items() if k not in entries(measured)}
        head = yaml.safe_dump(rest, sort_keys=False, width=_WIDTH)
        kept = yaml.safe_dump(own, sort_keys=False, width=_WIDTH) if own else ""
        lines = [*(f"  {line}" for line in kept.splitlines()), *_lines(measured, "  ")]
        edited = head + "planning:\n" + "\n".join(lines) + "\n\n# As it was before:\n" + old
    return edited


def _edited(text: str, measured: Measured) -> str | None:
    """The text edited in place; None where that is not possible."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        return None
    lines = text.splitlines()
    found = [(key, value) for key, value in root.value if key.value == "planning"]
    if not found:
        return "\n".join([*lines, "", "planning:", *_lines(measured, "  ")]) + "\n"
    key, value = found[0]
    head = key.start_mark.line
    if not isinstance(value, yaml.MappingNode) or value.flow_style:
        if isinstance(value, yaml.MappingNode) and value.value:
            return None
        return (
            "\n".join(
                [
                    *lines[:head],
                    "planning:",
                    *_lines(measured, "  "),
                    *lines[value.end_mark.line + 1 :],
                ]
            )
            + "\n"
        )
    own = entries(measured)
    gone: set[int] = set()
    for child, content in value.value:
        if child.value in own:
            last = content.end_mark.line
            block = isinstance(content, yaml.CollectionNode) and not content.flow_style
            gone |= set(range(child.start_mark.line, last if block else last + 1))
    indent = " " * value.value[0][0].start_mark.column
    body = [line for number, line in enumerate(lines) if number > head and number not in gone]
    return "\n".join([*lines[: head + 1], *_lines(measured, indent), *body]) + "\n"


def _lines(measured: Measured, indent: str) -> list[str]:
    """The entries as YAML lines, each with what was measured beside it."""
    own = entries(measured)
    plain = {name: value for name, value in own.items() if name != "constants"}
    rows = [
        "# Measured by a pilot without privacy: public or proxy data only.",
        f"# {measured.source}.",
        "# Intervals are of 95%; h and coherence stand at the upper end of theirs.",
    ]
    for name, value in plain.items():
        if name == "update_norms":
            rows += ["# quantiles of the norms of all updates, at even levels", f"{name}:"]
            rows.append(f"  {_flow(value)}")
        else:
            rows.append(f"{name}: {value!r}  # {_said(getattr(measured, name))}")
    rows.append("constants:")
    for name, value in own["constants"].items():
        rows.append(f"  {name}: {value!r}  # {_said(getattr(measured, name))}")
    return [indent + row for row in rows]


def _said(number: Number) -> str:
    return f"{number.value:.4g}, between {number.low:.4g} and {number.high:.4g}"


def _flow(values: list[float]) -> str:
    return "[" + ", ".join(repr(value) for value in values) + "]"


def _positive(number: Number) -> float:
    return number.value if number.value > 0 else max(number.high, 1e-12)


def _shown(value: float) -> float:
    return float(f"{value:.4g}")


def provisional(text: str, folder: Path | str = ".") -> Spec:
    """The spec as it will be once its constants are measured, with 1 in the place of each.

    Args:
        text: YAML of a spec, which may lack what a pilot finds.
        folder: where a relative ``groups_from`` starts.

    Raises:
        InputError: with all faults that no pilot would mend.
    """
    one = Number(value=1.0, low=1.0, high=1.0)
    numbers = {
        name: one for name in Measured.model_fields if name not in ("source", "update_norms")
    }
    blank = Measured.model_validate({"source": "", "update_norms": (1.0,), **numbers})
    return Spec.parse(_merged(load_yaml(text, "spec"), blank), folder)


def _merged(data: Any, measured: Measured) -> Any:
    """Plain data of a spec with the measured constants; what is no spec stays as it is."""
    if not isinstance(data, dict):
        return data
    planning = data.get("planning") or {}
    if not isinstance(planning, dict):
        return data
    return {**data, "planning": {**planning, **entries(measured)}}
