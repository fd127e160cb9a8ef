"""CPU time of everyday commands, imports included, each in a process of its own.

Every repetition runs each command once and, beside it, a fixed amount of work (a
yardstick), so that a slower hour of the machine slows both; the tables show medians of
CPU seconds, and of multiples of the yardstick. Byte code is cached, as after an
installation. ``--base FOLDER`` runs another checkout in turn and shows the ratio.
``--store`` keeps the result for this kind of machine in ``benchmarks/results``; every
other run is compared with what is kept there and says which command became slower by
more than 10%.

    python benchmarks/commands.py [--only NAME ...] [--repeats 5] [--base FOLDER]
        [--store]
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml
from stored import compare, machine_kind, stored

REPO = Path(__file__).resolve().parent.parent
BYTE_CODE = Path(tempfile.gettempdir()) / "privplan-benchmark-byte-code"
YARDSTICK = """
import numpy
matrix = numpy.random.default_rng(1).standard_normal((400, 400))
for _ in range(20):
    matrix = numpy.tanh(matrix @ matrix / 400)
total = sum(i * i for i in range(2_000_000))
"""

SETUP = (
    "init --preset digits -o digits.yaml",
    "solve digits.yaml -o digits.json",
    "init -o first.yaml",
    "solve three.yaml -o three.json",
    "simulate digits.json --algorithm GDPFed+ --dataset digits --seed 1 -o demo",
    "simulate digits.json --algorithm GDPFed+ --dataset digits --canaries 1000 -o canaries",
)
COMMANDS = {
    "verify": "verify demo --rounds 0",
    "verify, canaries": "verify canaries --rounds 0",
    "solve, three groups": "solve three.yaml -o out.json",
    "solve, ten groups": "solve ten.yaml -o out.json",
    "solve, first spec": "solve first.yaml -o out.json",
    "what-if, 100 points": "what-if three.yaml --workers 1 --vary groups.group0.epsilon=0.1:2:10 "
    "--vary cohort=30:600:10",
    "what-if, 40 budgets": "what-if three.yaml --workers 1 --vary groups.group0.epsilon=0.1:2:40",
    "what-if, 40 rounds": "what-if three.yaml --workers 1 --vary rounds=10:400:40",
    "what-if, 40 populations": "what-if three.yaml --workers 1 "
    "--vary groups.group0.clients=500:6000:40",
    "what-if, 40 deltas": "what-if three.yaml --workers 1 "
    "--vary groups.group0.delta=1e-6:1e-4:40:log",
    "what-if, 40 cohorts": "what-if three.yaml --workers 1 --vary cohort=30:600:40",
    "what-if, 1000 budgets": "what-if three.yaml --workers 1 "
    "--vary groups.group0.epsilon=0.1:2:1000",
    "what-if, 1000 rounds": "what-if three.yaml --workers 1 --vary rounds=10:1009:1000",
    "what-if, 1000 populations": "what-if three.yaml --workers 1 "
    "--vary groups.group0.clients=500:6000:1000",
    "what-if, 1000 deltas": "what-if three.yaml --workers 1 "
    "--vary groups.group0.delta=1e-6:1e-4:1000:log",
    "what-if, 1000 cohorts": "what-if three.yaml --workers 1 --vary cohort=30:600:1000",
    "what-if, 32 x 32 cohorts": "what-if three.yaml --workers 1 "
    "--vary groups.group0.epsilon=0.1:2:32 --vary cohort=30:600:32",
    "what-if, 32 x 32 rounds": "what-if three.yaml --workers 1 "
    "--vary groups.group0.epsilon=0.1:2:32 --vary rounds=10:400:32",
    "what-if, 40 norms": "what-if three.yaml --workers 1 --vary clipping_norm=0.1:4:40",
    "frontier": "what-if three.yaml --frontier",
    "solve, free rounds and clipping": "solve free.yaml -o out.json",
    "account": "account --noise-multiplier 1.504 --sampling-ratio 0.02 --rounds 50 --delta 6.98e-5",
    "simulate, digits": "simulate hundred.json --algorithm planned --dataset digits -o {run}",
    "compare all": "compare eight.json --algorithms all --dataset digits --seeds 1 -o {run}",
}


FREE = {
    "free": ["ratios", "weights", "rounds", "clipping_norm"],
    "update_norms": [0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5],
    "constants": {
        "smoothness": 1.0,
        "initial_gap": 2.3,
        "dissimilarity": 1.0,
        "local_variance": 1,
    },
    "max_rounds": 400,
}
"""Planning choices of a spec whose rounds and clipping norm are free."""


def spec(groups: int) -> dict[str, object]:
    """Budgets of equally many clients for the default objective."""
    people = [
        {"name": f"group{i}", "clients": 6000 // groups, "epsilon": 0.5 + 0.5 * i}
        for i in range(groups)
    ]
    local = {"steps": 5, "batch_size": 10, "learning_rate": 0.1}
    model = {"name": "cnn-2", "parameters": 28938}
    return {
        "name": f"{groups} groups",
        "groups": people,
        "rounds": 50,
        "cohort": 120,
        "clipping_norm": 1.0,
        "local": local,
        "model": model,
    }


def cpu_seconds(command: list[str], folder: Path, checkout: Path) -> float:
    """CPU seconds of a command and its children.

    Raises:
        SystemExit: the command failed.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(BYTE_CODE)
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(command)} in {checkout}: {done.stderr.strip()}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def shell(line: str) -> list[str]:
    """The command line of a line of ``SETUP`` or ``COMMANDS``."""
    return [sys.executable, "-m", "privplan", *line.split()]


def prepare(folder: Path, checkout: Path, setup: Sequence[str]) -> None:
    """Write the specs, plans and runs that the commands read."""
    folder.mkdir()
    for groups, name in ((3, "three"), (10, "ten")):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(spec(groups)))
    (folder / "free.yaml").write_text(yaml.safe_dump({**spec(3), "planning": FREE}))
    for line in setup:
        cpu_seconds(shell(line), folder, checkout)
    digits = (folder / "digits.yaml").read_text()
    for rounds, name in ((100, "hundred"), (8, "eight")):
        changed = re.sub(r"(?m)^rounds: \d+", f"rounds: {rounds}", digits)
        (folder / f"{name}.yaml").write_text(changed)
        cpu_seconds(shell(f"solve {name}.yaml -o {name}.json"), folder, checkout)


def measure(
    names: list[str],
    repeats: int,
    checkouts: dict[str, Path],
    setup: Sequence[str] = SETUP,
) -> dict[str, list[float]]:
    """CPU seconds by checkout and command, and of the yardstick, one per repetition."""
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as parent:
        for label, checkout in checkouts.items():
            prepare(Path(parent) / label, checkout, setup)
        for repetition in range(repeats):
            yardstick = [sys.executable, "-c", YARDSTICK]
            cost = cpu_seconds(yardstick, Path(parent), REPO)
            seconds.setdefault("yardstick", []).append(cost)
            for name in names:
                for label, checkout in checkouts.items():
                    line = COMMANDS[name].format(run=f"run-{repetition}")
                    cost = cpu_seconds(shell(line), Path(parent) / label, checkout)
                    seconds.setdefault(f"{label}: {name}", []).append(cost)
                    subprocess.run(
                        ["rm", "-rf", Path(parent) / label / f"run-{repetition}"]
                    )
    return seconds


def main() -> None:
    """Measure, print, and compare with or store the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", nargs="+", choices=COMMANDS, help="some commands (default all)"
    )
    parser.add_argument(
        "--repeats", type=int, default=5, help="repetitions (default 5)"
    )
    parser.add_argument("--base", type=Path, help="another checkout, timed in turn")
    parser.add_argument("--small", action="store_true", help="small sizes, in seconds")
    parser.add_argument("--store", action="store_true", help="keep the result")
    options = parser.parse_args()
    names = list(options.only or COMMANDS)
    checkouts = {"now": REPO}
    if options.base:
        checkouts["base"] = options.base.resolve()
    setup = SETUP
    if options.small:
        names = ["solve, three groups", "account"]
        options.repeats = 1
        setup = SETUP[:1]
    seconds = measure(names, options.repeats, checkouts, setup)
    multiples = {
        name: median_ratio(seconds[f"now: {name}"], seconds["yardstick"])
        for name in names
    }
    stored_multiples = stored("commands")
    print(f"machine kind {machine_kind()}; medians of {options.repeats}; CPU seconds")
    print(
        f"{'command':26}{'seconds':>9}{'multiple':>10}{'stored':>9}{'base':>9}"
        f"{'now/base':>10}"
    )
    for name in names:
        now = seconds[f"now: {name}"]
        line = f"{name:26}{statistics.median(now):9.2f}{multiples[name]:10.1f}"
        if name in stored_multiples:
            line += f"{stored_multiples[name]:9.1f}"
        else:
            line += f"{'-':>9}"
        if f"base: {name}" in seconds:
            base = seconds[f"base: {name}"]
            line += f"{statistics.median(base):9.2f}{median_ratio(now, base):10.2f}"
        print(line)
    compare("commands", multiples, store=options.store)


def median_ratio(values: list[float], units: list[float]) -> float:
    """Median of values over units, repetition by repetition."""
    pairs = zip(values, units, strict=True)
    return statistics.median(value / unit for value, unit in pairs)


if __name__ == "__main__":
    main()
