"""The same run as ``run.sh``, from Python."""

from typing import Any

from data import write
from nets import Net

import privplan
import simulate


def main(folder: str = "run", **options: Any) -> simulate.TrainedRun:
    """Train, or resume what was interrupted."""
    data = simulate.Data.load(
        "patients.csv",
        task="binary",
        label="relapse",
        client="patient",
        group="consent",
        statistics="statistics.json",
    )
    plan = privplan.solve("spec.yaml")
    return simulate.train(
        plan, model=Net, data=data, metric="f1", seed=1, folder=folder, **options
    )


if __name__ == "__main__":
    write()
    run = main()
    print(run.metric, run.score, run.by_group, run.verdict.outcome)
