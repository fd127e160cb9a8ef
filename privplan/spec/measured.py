"""Measured constants into the text of a spec: values with their intervals, comments kept.

A pilot on public or proxy data hands back ``Measured``; everything else in the text of the spec
stays as a person wrote it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from privplan.files import Convert, edited, load_yaml
from privplan.spec.spec import Spec
from privplan.values import Value

_MARK = (
    "Pilot: "  # begins the lines of comment on a pilot, which the next pilot replaces
)


class Number(Value):
    """A measured number."""

    value: float  # the estimate
    low: float  # lower end of its interval of 95%
    high: float  # upper end


class Measured(Value):
    """The constants of planning as a pilot found them."""

    source: str  # rounds, clients, data set, partition and seed
    update_norm: Number  # root mean square of a client's update norm
    update_norms: tuple[float, ...]  # quantiles of the update norms, at even levels
    heterogeneity: Number  # h, how much the mean updates of groups differ, in norm
    smoothness: Number  # largest curvature L of the mean objective
    noise_curvature: Number  # mean curvature in isotropic directions
    sampling_curvature: (
        Number  # mean curvature along the scatter of the clients' updates
    )
    initial_gap: (
        Number  # loss at the beginning, at least f(theta^0) - f* as no loss is negative
    )
    local_variance: (
        Number  # zeta^2, variance of a coordinate of a client's mini-batch gradient
    )
    dissimilarity: (
        Number  # kappa^2, squared distance of clients' gradients from their mean
    )

    @property
    def numbers(self) -> dict[str, Number]:
        """Every constant that is one number, by name."""
        found = ((name, getattr(self, name)) for name in type(self).model_fields)
        return {name: value for name, value in found if isinstance(value, Number)}


def entries(measured: Measured) -> dict[str, Any]:
    """What goes under ``planning``, as plain data.

    h is written at the upper end of its interval: it is insurance, a price on weights other than
    the population's, and too small a price is the worse mistake. A curvature whose estimate is not
    positive is written at its upper end too.
    """
    one = measured
    return {
        "update_norm": _shown(one.update_norm.value),
        "update_norms": [_shown(norm) for norm in one.update_norms],
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
    """The text of a spec with the measured constants, at the end of ``planning``."""
    own = entries(measured)

    def edit(content: Any, convert: Convert) -> None:
        planning = content.get("planning")
        if not planning:
            planning = content["planning"] = convert({"update_norm": 0})
        planning.fa.set_block_style()
        if not planning.get("constants"):
            planning["constants"] = convert({"smoothness": 0})
        planning["constants"].fa.set_block_style()
        for place, values in (
            (planning, own),
            (planning["constants"], own["constants"]),
        ):
            place.update(
                {name: convert(values[name]) for name in values if name != "constants"}
            )
        planning["update_norms"].fa.set_flow_style()
        rows = [
            "measured without privacy: public or proxy data only",
            measured.source,
            "update_norms are quantiles of the norms of all updates, at even levels",
            "intervals are of 95%; heterogeneity stands at the upper end of its own",
            *(
                f"{name} {one.value:.4g}, between {one.low:.4g} and {one.high:.4g}"
                for name, one in measured.numbers.items()
            ),
        ]
        lines = "\n".join(_MARK + row for row in rows)
        planning.yaml_set_comment_before_after_key(next(iter(own)), lines, indent=2)

    kept = [
        line for line in text.splitlines() if not line.lstrip().startswith(f"# {_MARK}")
    ]
    text = "\n".join(kept) + "\n"
    return edited(text, edit, _merged(load_yaml(text, "spec"), measured), "spec")


def _positive(number: Number) -> float:
    return number.value if number.value > 0 else max(number.high, 1e-12)


def _shown(value: float) -> float:
    return float(f"{value:.4g}")


def provisional(text: str, folder: Path | str = ".") -> Spec:
    """The spec as it will be once its constants are measured, with 1 in the place of each."""
    names = Measured.model_fields.keys() - {"source", "update_norms"}
    numbers = dict.fromkeys(names, Number(value=1.0, low=1.0, high=1.0))
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
