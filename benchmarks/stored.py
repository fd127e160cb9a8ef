"""Results of benchmarks by kind of machine, and what became slower since."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from privplan.cli import doctor as environment

RESULTS = Path(__file__).resolve().parent / "results"
# A cost counts as higher above this multiple of the stored one.
SLOWER = 1.1


def machine_kind() -> str:
    """Name of this kind of machine for a file: processor and number of cores."""
    kind = environment.machine_kind().removesuffix(" cores")
    return re.sub(r"[^A-Za-z0-9]+", "-", kind).strip("-").lower()


def _path(benchmark: str) -> Path:
    return RESULTS / f"{benchmark}-{machine_kind()}.json"


def stored(benchmark: str) -> dict[str, float]:
    """The stored costs of a benchmark on this kind of machine; empty without any."""
    path = _path(benchmark)
    return dict(json.loads(path.read_text())["costs"]) if path.is_file() else {}


def compare(benchmark: str, costs: Mapping[str, float], *, store: bool) -> None:
    """Print which costs rose by more than 10%, and store the new ones.

    Args:
        benchmark: name of the benchmark.
        costs: cost by name, as a multiple of a yardstick that was timed in the same
            run.
        store: whether the costs replace the stored ones.
    """
    before = stored(benchmark)
    for name, cost in costs.items():
        if name in before and cost > SLOWER * before[name]:
            print(f"slower: {name}, {cost / before[name]:.2f} times the stored result")
    if store:
        RESULTS.mkdir(exist_ok=True)
        content = {"machine": machine_kind(), "costs": {**before, **costs}}
        _path(benchmark).write_text(json.dumps(content, indent=1) + "\n")
        print(f"stored in benchmarks/results/{_path(benchmark).name}")
