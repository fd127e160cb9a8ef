"""The same run as ``run.sh``, from Python."""

from typing import Any

from data import write
from nets import Net, loss

import privplan
import simulate


def main(folder: str = "run", **options: Any) -> simulate.TrainedRun:
    """Train, or resume what was interrupted."""
    data = simulate.Data.load(
        "houses.parquet",
        task="regression",
        label="price",
        client="agency",
        group="consent",
        statistics="statistics.json",
    )
    plan = privplan.solve("spec.yaml")
    return simulate.train(
        plan,
        model=Net,
        data=data,
        loss=loss,
        metric="mae",
        seed=1,
        folder=folder,
        **options,
    )


if __name__ == "__main__":
    write()
    run = main()
    print(run.metric, run.score, run.by_group, run.verdict.outcome)
