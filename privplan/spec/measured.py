"""Measured constants into the text of a spec: values with their intervals.

A pilot on public or proxy data hands back ``Measured``; everything else in the text of
the spec stays as a person wrote it, comments too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from privplan.errors import InputError
from privplan.file_kinds import spec_mapping
from privplan.spec.positions import with_lines
from privplan.spec.spec import Spec
from privplan.values import Value
from privplan.yaml_text import Convert, edited, load_yaml

# Begins the lines of comment on a pilot, which the next pilot replaces.
_MARK = "Pilot: "
# A curvature is above 0, also where its interval is not.
_SMALLEST_CURVATURE = 1e-12


class Number(Value):
    """A measured number: the estimate, and the ends of its interval of 95%."""

    value: float
    low: float
    high: float


class Measured(Value):
    """The constants of planning as a pilot found them.

    Attributes:
        source: rounds, clients, data set, partition and seed.
        update_norm: root mean square of a client's update norm.
        update_norms: quantiles of the update norms, at even levels.
        heterogeneity: how much the mean updates of groups differ, in norm (h).
        smoothness: largest curvature of the mean objective (L).
        noise_curvature: mean curvature in isotropic directions.
        sampling_curvature: mean curvature along the scatter of the clients' updates.
        initial_gap: loss at the beginning, at least f(theta^0) - f* as no loss is
            negative.
        local_variance: variance of a coordinate of a client's mini-batch gradient
            (zeta^2).
        dissimilarity: squared distance of clients' gradients from their mean (kappa^2).
    """

    source: str
    update_norm: Number
    update_norms: tuple[float, ...]
    heterogeneity: Number
    smoothness: Number
    noise_curvature: Number
    sampling_curvature: Number
    initial_gap: Number
    local_variance: Number
    dissimilarity: Number

    @property
    def numbers(self) -> dict[str, Number]:
        """Every constant that is a number with its interval, by name."""
        return {name: value for name, value in self if isinstance(value, Number)}


def entries(measured: Measured) -> dict[str, Any]:
    """What goes under ``planning``, as plain data.

    h is written at the upper end of its interval: it is insurance, a price on weights
    other than the population's, and too small a price is the worse mistake. A curvature
    whose estimate is not positive is written at its upper end too.
    """
    return {
        "update_norm": _shown(measured.update_norm.value),
        "update_norms": [_shown(norm) for norm in measured.update_norms],
        "heterogeneity": _shown(measured.heterogeneity.high),
        "constants": {
            "smoothness": _shown(measured.smoothness.value),
            "noise_curvature": _shown(_positive(measured.noise_curvature)),
            "sampling_curvature": _shown(_positive(measured.sampling_curvature)),
            "initial_gap": _shown(measured.initial_gap.value),
            "local_variance": _shown(max(measured.local_variance.value, 0.0)),
            "dissimilarity": _shown(max(measured.dissimilarity.value, 0.0)),
        },
    }


def written(text: str, measured: Measured) -> str:
    """The text of a spec with the measured constants, at the end of ``planning``."""
    new_entries = entries(measured)
    constants = new_entries["constants"]
    numbers = {name: new for name, new in new_entries.items() if name != "constants"}

    def edit(content: Any, convert: Convert) -> None:
        # A mapping in brackets has no place for comments.
        planning = content.get("planning")
        if not planning:
            planning = content["planning"] = convert({"update_norm": 0})
        planning.fa.set_block_style()
        if not planning.get("constants"):
            planning["constants"] = convert({"smoothness": 0})
        planning["constants"].fa.set_block_style()
        planning.update({name: convert(new) for name, new in numbers.items()})
        planning["constants"].update(
            {name: convert(new) for name, new in constants.items()}
        )
        planning["update_norms"].fa.set_flow_style()
        lines = "\n".join(_MARK + line for line in _comments(measured))
        planning.yaml_set_comment_before_after_key(
            next(iter(new_entries)), lines, indent=2
        )

    lines = [
        line for line in text.splitlines() if not line.lstrip().startswith(f"# {_MARK}")
    ]
    text = "\n".join(lines) + "\n"
    return edited(text, edit, _merged(load_yaml(text, "spec"), measured), "spec")


def _comments(measured: Measured) -> list[str]:
    """Where the constants are from, and their intervals."""
    intervals = [
        f"{name} {number.value:.4g}, between {number.low:.4g} and {number.high:.4g}"
        for name, number in measured.numbers.items()
    ]
    return [
        "measured without privacy: public or proxy data only",
        measured.source,
        "update_norms are quantiles of the norms of all updates, at even levels",
        "intervals are of 95%; heterogeneity stands at the upper end of its own",
        *intervals,
    ]


def _positive(number: Number) -> float:
    """The estimate, or the upper end of its interval where it is not positive."""
    if number.value > 0:
        return number.value
    return max(number.high, _SMALLEST_CURVATURE)


def _shown(value: float) -> float:
    """The value rounded to four digits."""
    return float(f"{value:.4g}")


def provisional(text: str, path: Path | str = "spec.yaml") -> Spec:
    """The spec as it will be once its constants are measured, with 1 for each.

    Args:
        text: of the spec.
        path: of its file.
    """
    names = Measured.model_fields.keys() - {"source", "update_norms"}
    numbers = dict.fromkeys(names, Number(value=1.0, low=1.0, high=1.0))
    blank = Measured.model_validate({"source": "", "update_norms": (1.0,), **numbers})
    data = _merged(spec_mapping(text, path), blank)
    try:
        return Spec.parse(data, Path(path).parent)
    except InputError as error:
        raise with_lines(error, text, path) from None


def _merged(data: Any, measured: Measured) -> Any:
    """Plain data of a spec with the measured constants; other data stay as they are."""
    if not isinstance(data, dict):
        return data
    planning = data.get("planning") or {}
    if not isinstance(planning, dict):
        return data
    return {**data, "planning": {**planning, **entries(measured)}}
