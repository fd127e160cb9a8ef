"""The same run as ``run.sh``, from Python."""

from typing import Any

from data import data
from nets import build

import privplan
import simulate


def main(folder: str = "run", **options: Any) -> simulate.TrainedRun:
    """Train, or resume what was interrupted."""
    plan = privplan.solve("spec.yaml")
    return simulate.train(
        plan, model=build, data=data(), seed=1, folder=folder, **options
    )


if __name__ == "__main__":
    run = main()
    print(run.metric, run.score, run.by_group, run.verdict.outcome)
