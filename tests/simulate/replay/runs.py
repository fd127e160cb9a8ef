"""Short plans, their replay, and what it compared."""

from functools import cache
from pathlib import Path

from privplan.files import load_yaml
from privplan.planning.solver import solve
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from simulate.replay.replay import Replay

ROOT = Path(__file__).parents[3]
ROUNDS = 3
PLANNING = {
    "per_group": {"ratios": "uniform", "weights": "inverse_variance"},
    "joint": {"ratios": "balanced"},
    "quantile": {"ratios": "balanced", "clipping": {"quantile": 0.6}},
    "quantiles": {
        "ratios": "uniform", "clipping": {"quantile": 0.6}, "sparsification": [0.5, 0.6, 0.7],
    },
}  # fmt: skip


@cache
def short_plan(sampling="poisson", planning="per_group", server="", averaging=""):
    """Three rounds on the digits with a bound that some updates exceed."""
    data = dict(load_yaml(preset("digits"), "spec"))
    data |= {"rounds": ROUNDS, "clipping_norm": 0.5, "sampling": sampling}
    data["planning"] = {"accountant": "rdp", **PLANNING[planning]}
    data |= {"server": {"optimizer": server}} if server else {}
    data |= {"averaging": {"method": averaging}} if averaging else {}
    if sampling == "full":
        data["cohort"] = sum(group["clients"] for group in data["groups"])
    return solve(Spec.parse(data), second_opinion=False)


def replayed(folder, rounds=None, seed=None):
    return Replay(folder).run(rounds, seed, lambda done, total: None)


def comparison(report, name):
    [one] = [one for one in report.comparisons if one.name == name]
    return one.compared, one.differ
