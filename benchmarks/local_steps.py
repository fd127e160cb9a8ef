"""What local steps are worth: accuracy by their number, at one plan and at one device time.

Development of the default recipe (docs/recipe.md), on the tasks and with the small simulation of
benchmarks/local_rate.py: scikit-learn's digits, and the docstrings of Python modules.

    python -m benchmarks.local_steps digits|text worth|limits [--seeds 4] [--factors 0.4,1,3]
        [--rounds 15,60,240] [--steps 1,2,5,10,20,30,60] [--momentum 0] [--limits 9000,36000]
        [--epsilons 1,3,8] [--first 0]

``worth`` trains one plan (rounds, cohort, noise) with each tau at the recipe's step of the server.
``limits`` plans rounds and cohort for each tau within `max_local_steps`, so that fewer steps buy
more uploads, and marks the tau that a spec with free local steps gets. --factors multiply all
epsilons. Prints a row of JSON per cell.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.local_rate import DIGITS, accuracy, planned
from benchmarks.recipe import spec_data
from privplan.plan import Plan
from privplan.planning.choices import STEP_LENGTH, relative_noise
from privplan.spec.training import UNIT

COHORTS = {"digits": 30, "text": 71}


def base(asked: argparse.Namespace, factor: float, steps: int) -> dict[str, Any]:
    """Plain data of a task's spec with its epsilons, or those asked for, times a factor."""
    shakespeare = argparse.Namespace(task="shakespeare", rounds=50, cohort=COHORTS[asked.task])
    data = DIGITS if asked.task == "digits" else spec_data(shakespeare)
    own = [group["epsilon"] for group in data["groups"]]
    epsilons = [float(one) for one in asked.epsilons.split(",")] if asked.epsilons else own
    groups = [
        {**group, "epsilon": factor * epsilon}
        for group, epsilon in zip(data["groups"], epsilons, strict=True)
    ]
    size = 5 if asked.task == "digits" else 4
    local = {"steps": steps, "momentum": asked.momentum, "batch_size": size}
    return {**data, "groups": groups, "local": local}


def worth(asked: argparse.Namespace) -> Iterator[tuple[dict[str, Any], Plan]]:
    """The plans of one noise, rounds and cohort, by local steps."""
    for factor in map(float, asked.factors.split(",")):
        for rounds in map(int, asked.rounds.split(",")):
            for steps in map(int, asked.steps.split(",")):
                data = base(asked, factor, steps)
                plan = planned(
                    json.dumps({**data, "rounds": rounds, "cohort": COHORTS[asked.task]})
                )
                yield {"factor": factor, "rounds": rounds, "steps": steps}, plan


def limits(asked: argparse.Namespace) -> Iterator[tuple[dict[str, Any], Plan]]:
    """Plans of free rounds and cohort within a number of local steps, and that of free steps."""
    for factor in map(float, asked.factors.split(",")):
        for most in map(int, asked.limits.split(",")):
            for steps in [None, *map(int, asked.steps.split(","))]:
                free = ["ratios", "weights", "rounds", "cohort"]
                data = base(asked, factor, steps or 30)
                data["planning"] = {
                    "free": free if steps else [*free, "local_steps"],
                    "max_local_steps": most,
                }
                plan = planned(json.dumps(data))
                cell = {"factor": factor, "limit": most, "steps": plan.spec.local.steps}
                if not steps:
                    cell["chosen"] = True
                cohort = round(plan.spec.expected_cohort, 1)
                yield {**cell, "rounds": plan.spec.rounds, "cohort": cohort}, plan


def row_of(plan: Plan, asked: argparse.Namespace) -> dict[str, Any]:
    """Noise and accuracy of a plan at the recipe's step of the server."""
    noise = relative_noise(plan)
    step = STEP_LENGTH * UNIT / math.hypot(1, noise)
    scores = [
        accuracy(plan, asked.task, step, seed)
        for seed in range(asked.first, asked.first + asked.seeds)
    ]
    return {
        "noise": round(noise, 3),
        "accuracy": round(statistics.fmean(scores), 2),
        "by_seed": [round(score, 2) for score in scores],
    }


def main() -> None:
    """Train and print every cell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=("digits", "text"))
    parser.add_argument("table", choices=("worth", "limits"))
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--factors", default="0.4,1,3")
    parser.add_argument("--rounds", default="15,60,240")
    parser.add_argument("--steps", default="1,2,5,10,20,30,60")
    parser.add_argument("--limits", default="9000,36000")
    parser.add_argument("--epsilons", help="of the three groups, in place of the task's")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--momentum", type=float, default=0.0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for cell, plan in (worth if asked.table == "worth" else limits)(asked):
        print(json.dumps({**cell, **row_of(plan, asked)}), flush=True)


if __name__ == "__main__":
    main()
