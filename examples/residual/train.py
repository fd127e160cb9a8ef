"""The same run as ``run.sh``, from Python."""

from typing import Any

import numpy as np
from data import write
from nets import Net

import privplan
import simulate


def main(folder: str = "run", **options: Any) -> simulate.TrainedRun:
    """Train, or resume what was interrupted."""
    arrays = np.load("signals.npz")
    data = simulate.Data(**arrays, name="signals.npz")
    plan = privplan.solve("spec.yaml")
    return simulate.train(
        plan,
        model=Net,
        model_args={"blocks": 1},
        data=data,
        seed=1,
        folder=folder,
        **options,
    )


if __name__ == "__main__":
    write()
    run = main()
    print(run.metric, run.score, run.by_group, run.verdict.outcome)
