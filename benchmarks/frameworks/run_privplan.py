"""W1 by the simulator: whole rounds with sampling, ledger and measurements.

python run_privplan.py ROUNDS
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import yaml
from workload import CLIENTS, CLIP, COHORT, LEARNING_RATE, RECORDS, STEPS, population

import privplan
import simulate


def main(rounds: int) -> None:
    """Plan, train, and write ledger and record."""
    images, labels = population()
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "spec.yaml"
        spec.write_text(
            yaml.safe_dump(
                {
                    "name": "w1",
                    "groups": [{"name": "all", "clients": CLIENTS, "epsilon": 1.0}],
                    "rounds": rounds,
                    "cohort": COHORT,
                    "clipping_norm": CLIP,
                    "local": {
                        "steps": STEPS,
                        "batch_size": RECORDS,
                        "learning_rate": LEARNING_RATE,
                    },
                    "model": {"name": "cnn-2", "parameters": 28938},
                }
            )
        )
        plan = privplan.solve(spec)
        x = images.reshape(-1, 1, 28, 28).numpy()
        y = labels.reshape(-1).numpy()
        client = [f"{i // RECORDS}" for i in range(len(y))]
        data = simulate.Data(
            x,
            y,
            client=client,
            group=["all"] * len(y),
            test=simulate.Data(x[:100], y[:100]),
        )
        simulate.train(
            plan, data=data, algorithm="DP-FedAvg", seed=1, folder=Path(folder) / "run"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]))
