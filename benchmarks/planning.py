"""Time to plan: privplan's search on curves against the same search over dp-accounting.

The planner decides ratios, noise and weights of three groups together. The same search
(same starts, same objective, same solver) with a calibrator in the loop asks for a
noise multiplier of every group at every point it visits. The points are counted in our
own search; dp-accounting's calibrator (as in benchmarks/calibration.py, on a grid that
suits the loss) is timed on a few of them, spread over the search, in the same process;
the product is what its search takes. Then the whole command from the shell, imports
included, and the published plans beside ours for every preset.

    python benchmarks/planning.py
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from calibration import by_dp_accounting

from privplan.accounting.pld import accountant as pld_accountant
from privplan.planning import noise_curves, search
from privplan.planning.choices import task_of
from privplan.planning.noise_curves import NoiseCurves, NoiseValues
from privplan.planning.problem import problem_of
from privplan.planning.solver import solve
from privplan.spec.presets import PRESETS, preset
from privplan.spec.spec import Spec
from privplan.yaml_text import load_yaml

SAMPLES = 6
RUNS = 3
READY = "gdpfed-fmnist"  # the preset that is timed


def spec_of(name: str, **planning: Any) -> Spec:
    """A preset with other planning choices."""
    data = load_yaml(preset(name), name)
    data["planning"] = planning or {}
    return Spec.parse(data)


def visited(spec: Spec) -> list[tuple[int, float]]:
    """Group and ratio of every noise multiplier that the search asks for."""
    task = task_of(spec, problem_of(spec))
    points: list[tuple[int, float]] = []

    def counted(self: NoiseCurves, ratios: np.ndarray) -> NoiseValues:
        if ratios.ndim == 1:
            points.extend((m, float(q)) for m, q in enumerate(ratios))
        return original(self, ratios)

    original = NoiseCurves.evaluate
    NoiseCurves.evaluate = counted
    try:
        search.allocate(task)
    finally:
        NoiseCurves.evaluate = original
    return list(dict.fromkeys(points))


def time_search(spec: Spec, samples: int, runs: int) -> None:
    """Our solve against the same search with dp-accounting asked at some points."""
    problem = problem_of(spec)
    ours = []
    for _ in range(runs):
        noise_curves._coarse_curve.cache_clear()
        pld_accountant._bounds.cache_clear()
        start = time.perf_counter()
        solve(spec)
        ours.append(time.perf_counter() - start)
    points = visited(spec)
    plain = [point for point in points if point[1] > 1e-3]
    chosen = [plain[i] for i in np.linspace(0, len(plain) - 1, samples).astype(int)]
    theirs = []
    for group, ratio in chosen:
        start = time.perf_counter()
        by_dp_accounting(
            problem.epsilons[group], problem.deltas[group], ratio, problem.rounds
        )
        theirs.append(time.perf_counter() - start)
    our_seconds = statistics.median(ours)
    calibration_seconds = statistics.median(theirs)
    search_seconds = calibration_seconds * len(points)
    print(
        f"privplan.planning.solver, certificate included: {our_seconds:.2f} s "
        f"(median of {runs})"
    )
    print(
        f"dp-accounting: {calibration_seconds:.2f} s a calibration "
        f"(median of {samples}) x {len(points)} points"
    )
    print(
        f"             = {search_seconds:.0f} s for the same search: "
        f"{search_seconds / our_seconds:.0f} times as long"
    )


def time_command(name: str, runs: int) -> None:
    """The whole command with the default objective."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spec.yaml"
        text = preset(name)
        path.write_text(text[: text.index("planning:")])
        walls = []
        for _ in range(runs):
            start = time.perf_counter()
            command = [sys.executable, "-m", "privplan", "solve", str(path)]
            subprocess.run(command, check=True, capture_output=True)
            walls.append(time.perf_counter() - start)
    print(
        f"privplan solve from the shell, imports included: {min(walls):.2f} s "
        f"(best of {runs})"
    )


def compare_presets(names: Iterable[str]) -> None:
    """Norm of the mean update's noise: published, published ratios with PLD, ours."""
    kinds: dict[str, dict[str, Any]] = {
        "published": {"accountant": "rdp", "ratios": "gdpfed_plus"},
        "with pld": {"accountant": "pld", "ratios": "gdpfed_plus"},
        "separate": {"accountant": "pld", "ratios": "noise", "release": "per_group"},
        "joint": {"accountant": "pld", "ratios": "noise"},
        "balanced": {"accountant": "pld", "ratios": "balanced"},
    }
    print(f"{'noise in norm':20}" + "".join(f"{kind:>12}" for kind in kinds))
    for name in names:
        norms = []
        for planning in kinds.values():
            plan = solve(spec_of(name, **planning), second_opinion=False)
            norms.append(plan.mean_noise_std * math.sqrt(plan.spec.model.parameters))
        print(f"{name:20}" + "".join(f"{norm:12.3f}" for norm in norms), flush=True)


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="small sizes, in seconds")
    options = parser.parse_args()
    samples = SAMPLES
    runs = RUNS
    names = [name for name in PRESETS if name.startswith("gdpfed")]
    if options.small:
        samples = 1
        runs = 1
        names = []
    time_search(spec_of(READY, accountant="pld", ratios="balanced"), samples, runs)
    time_command(READY, runs)
    compare_presets(names)


if __name__ == "__main__":
    main()
