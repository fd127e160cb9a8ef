"""``python -m tests.sabotage.verdicts``: what ``verify`` says of runs, broken or not.

It is asked as a user would ask it, with its default execution, and again with
``--rounds all`` where it did not say broken. Writes ``docs/evidence/verdicts.md``, and
a row per run beside it.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from click.testing import CliRunner

from privplan.cli import main
from privplan.errors import InputError, PrivplanError
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.sabotage import COLLECTED, FAULTS, Fault, honest_runs, plan, planted
from tests.sabotage.kinds import leaks, rounds
from tests.simulate.conftest import interrupt

T = TypeVar("T")
EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence"
PAGE = EVIDENCE / "verdicts.md"
BROKEN = EVIDENCE / "data" / "verdicts-of-broken-runs.csv"
HONEST = EVIDENCE / "data" / "verdicts-of-honest-runs.csv"


def answer(folder: Path, *options: str) -> tuple[str, str]:
    """Level and reason of ``privplan verify``."""
    done = CliRunner().invoke(
        main, ["verify", str(folder), "--format", "json", *options]
    )
    # A folder that is refused has no verdict.
    if isinstance(done.exception, PrivplanError):
        return "refused", str(done.exception)
    if not done.stdout:
        raise AssertionError(done.output) from done.exception
    verdict = json.loads(done.stdout)
    checks = [check for check in verdict["checks"] if check["outcome"] == "failed"]
    failed_check = checks[0] if checks else None
    why = (
        f"{failed_check['name']}: {failed_check['reason']}"
        if failed_check
        else verdict["not_executed"]
    )
    return verdict["level"], why


def of_fault(fault: Fault) -> tuple[str, str, str]:
    """The answers on a run with a fault, by default and with all rounds, and why."""
    with tempfile.TemporaryDirectory(prefix="privplan-") as parent:
        folder = Path(parent) / "run"
        planted(fault, folder)
        level, why = answer(folder)
        level_of_all = level
        if level not in ("broken", "refused"):
            level_of_all, why = answer(folder, "--rounds", "all")
        return level, level_of_all, why


def _digits(**changes: Any) -> Plan:
    spec = plan().spec.model_dump(mode="json", exclude_unset=True)
    return solve(Spec.parse({**spec, "rounds": 8, **changes}))


JOINT = {"ratios": "balanced", "accountant": "rdp"}
UNUSUAL: dict[str, tuple[Callable[[], Plan], dict[str, Any]]] = {
    "cyclic Poisson, 2 parts": (lambda: plan("cyclic_poisson:2"), {}),
    "cyclic Poisson, 3 parts": (lambda: plan("cyclic_poisson:3"), {}),
    "secure noise": (plan, {"noise": "secure"}),
    "secure noise on a grid": (plan, {"noise": "secure-discrete"}),
    "joint sums": (lambda: _digits(planning=JOINT), {}),
    "quantile of norms": (
        lambda: _digits(planning={**JOINT, "clipping": {"quantile": 0.6}}),
        {},
    ),
    "server momentum": (lambda: _digits(server={"optimizer": "momentum"}), {}),
    "FedAdam": (lambda: _digits(server={"optimizer": "adam"}), {}),
    "mean of the last models": (lambda: _digits(averaging={"method": "tail"}), {}),
}
"""Honest runs beside those of every algorithm and law: name to the plan and its request."""


def of_honest(name: str, law: str, seed: int) -> tuple[str, str]:
    """The answer on an honest run of an algorithm under a law, or of an unusual one."""
    with tempfile.TemporaryDirectory(prefix="privplan-") as parent:
        folder = Path(parent) / "run"
        if name in UNUSUAL:
            make, options = UNUSUAL[name]
            execute(Request(make(), "planned", "digits", folder, seed=seed, **options))
        elif name == "interrupted and resumed":
            request = Request(plan(), "planned", "digits", folder, seed=seed)
            interrupt(request, 3)
            execute(request)
        else:
            run_honest(name, law, seed, folder)
        return answer(folder)


def run_honest(name: str, law: str, seed: int, folder: Path) -> None:
    """Run an algorithm under a law, or else under Poisson sampling."""
    for sampling in (law, "poisson"):
        try:
            execute(
                Request(
                    plan(sampling), name, "digits", folder, seed=seed, own_unit=True
                )
            )
            return
        except InputError:
            if sampling == "poisson":
                raise


LATER = (*rounds.FAULTS, *leaks.FAULTS)
NAMED = {
    fault.name: fault for fault in FAULTS if fault not in COLLECTED or fault in LATER
}
"""The faults of the first collection, those of a round and those around the sums."""


def _of_named(name: str) -> tuple[str, str, str]:
    return of_fault(NAMED[name])


def _of_run(run: tuple[str, str, int]) -> tuple[str, str]:
    return of_honest(*run)


def page(names: Sequence[str], runs: Sequence[tuple[str, str, int]], jobs: int) -> str:
    """The page, from runs that some processes make now; writes the rows beside it."""
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        faults = list(
            zip(names, _shown(pool.map(_of_named, names), len(names)), strict=True)
        )
        honest = list(
            zip(runs, _shown(pool.map(_of_run, runs), len(runs)), strict=True)
        )
    by_default = Counter(level for _, (level, _, _) in faults)
    with_all = Counter(level_of_all for _, (_, level_of_all, _) in faults)
    lines = [
        "# What verify says of broken and of honest runs",
        "",
        f"**Result.** {len(faults)} broken runs: by default {_counted(by_default)}; with",
        f"`--rounds all` {_counted(with_all)}. {len(honest)} honest runs:",
        f"{_counted(Counter(level for _, (level, _) in honest))}.",
        "",
        "`make faults` writes this page: runs on the digits, judged by `privplan verify RUN` as it",
        "executes rounds by default, and by `--rounds all` where that did not say broken.",
        "",
        "Every run, with its reason: [broken ones](data/verdicts-of-broken-runs.csv),",
        "[honest ones](data/verdicts-of-honest-runs.csv).",
    ]
    with BROKEN.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("fault", "verify", "with all rounds", "why"))
        for name, (by_default, with_all_rounds, why) in faults:
            writer.writerow((name, by_default, with_all_rounds, why[:140]))
    with HONEST.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("honest run", "law", "seed", "verify", "why not executed"))
        for run, (verdict, why) in honest:
            writer.writerow((*run, verdict, why[:140]))
    return "\n".join(lines) + "\n"


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {level}" for level, count in counts.most_common())


def _shown(items: Iterable[T], total: int) -> Iterator[T]:
    for number, item in enumerate(items, start=1):
        print(f"{number} of {total}: {item}", file=sys.stderr)
        yield item


if __name__ == "__main__":
    unusual = [(name, "", 7) for name in (*UNUSUAL, "interrupted and resumed")]
    usual = honest_runs(49 - len(unusual))
    PAGE.write_text(
        page(list(NAMED), [*unusual, *usual], os.cpu_count() or 1), encoding="utf-8"
    )
