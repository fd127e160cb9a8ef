"""Short plans, their replay, and what it compared."""

from functools import cache
from pathlib import Path

from privplan.planning.solver import solve
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from privplan.yaml_text import load_yaml
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
    if server:
        data["server"] = {"optimizer": server}
    if averaging:
        data["averaging"] = {"method": averaging}
    if sampling == "full":
        data["cohort"] = sum(group["clients"] for group in data["groups"])
    return solve(Spec.parse(data))


def replayed(folder, rounds=None, seed=None):
    """The report of a replay; of all rounds when their number is None."""
    return Replay(folder).run(rounds, seed, lambda done, total: None)


def comparison(report, name):
    """How often something was compared, and how often it differs."""
    [match] = [match for match in report.comparisons if match.name == name]
    return match.compared, match.differ


def names_of(differences):
    return {difference.name for difference in differences}
