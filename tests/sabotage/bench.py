"""The bench on which faults are planted: real runs on digits, and their verdicts."""

import atexit
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import yaml
from click.testing import CliRunner

from privplan.accounting.release import SamplingLaw
from privplan.auditing import exceeded
from privplan.errors import InputError
from privplan.evidence.replay import ReplayReport
from privplan.planning.solver import solve
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from privplan.verification.verify import judge, load_run
from simulate.algorithms.registry import ALGORITHMS
from simulate.cli.replay import command as replay_command
from simulate.runs.request import Request, prepare
from simulate.runs.run import run_prepared
from tests.sabotage.fault import Fault

ROUNDS = 20
SEEN = 0.05  # chance that the canaries of an honest run say anything, at most
CHANGES = {
    "rounds": ROUNDS,
    "clipping_norm": 0.5,
    "planning": {
        "ratios": "uniform",
        "weights": "inverse_variance",
        "accountant": "rdp",
    },
}
"""What differs from the digits preset: short runs, a bound that some updates exceed, and noise
that differs between groups."""


@dataclass(frozen=True)
class Finding:
    """What a verdict said of a broken run."""

    fault: Fault  # what was planted
    # whether the right check failed for the right reason; of a fault that the declared
    # evidence should not show, whether any check failed
    caught: bool
    reason: str  # the reason that the check gave
    # what canaries alone say against the planned epsilon; empty when they say nothing,
    # None when none were asked
    seen: str | None = None
    missing: bool = False  # whether the right check names the right missing evidence
    # outcome of ``privplan replay --rounds all``; empty when it was not asked
    replayed: str = ""
    difference: str = ""  # what the replay says

    @property
    def as_documented(self):
        """Whether each level of evidence that was tried shows what is documented."""
        if self.fault.level == "declared":
            return self.caught
        if self.fault.level == "not shown" and not self.missing:
            return False
        if not self.replayed:
            return not self.caught
        shows_in_replay = self.fault.level in ("not shown", "replayed")
        return (self.replayed == "failed") == shows_in_replay


@cache
def plan(sampling="poisson"):
    """The plan of the bench, under a sampling law."""
    data = {**yaml.safe_load(preset("digits")), **CHANGES, "sampling": sampling}
    if sampling.startswith("cyclic"):
        turns = int(sampling.partition(":")[2])
        data |= {"planning": {"ratios": "balanced"}, "rounds": ROUNDS // turns * turns}
    if sampling == SamplingLaw.FULL:
        data["cohort"] = sum(group["clients"] for group in data["groups"])
    return solve(Spec.parse(data))


def honest_runs(count):
    """Algorithm, sampling law and seed of runs that nobody broke: all in turn."""
    names = [name for name, row in ALGORITHMS.items() if row.unit != "none"]
    laws = list(SamplingLaw)
    return [
        (names[index % len(names)], str(laws[index % len(laws)]), 100 + index)
        for index in range(count)
    ]


def _request(sampling, algorithm, folder, seed, canaries=0):
    """A run of an algorithm on the digits under a law."""
    return Request(
        plan(sampling),
        algorithm,
        "digits",
        folder,
        seed,
        canaries=canaries,
        own_unit=True,
    )


def honest(algorithm, sampling, seed):
    """The verdict on a run that nobody broke, in a folder of its own.

    An algorithm that knows Poisson sampling only is run under it whatever is asked.
    """
    with tempfile.TemporaryDirectory(prefix="privplan-") as parent:
        folder = Path(parent) / "run"
        request = _request(sampling, algorithm, folder, seed)
        try:
            experiment = prepare(request)
        except InputError:
            request = replace(request, plan=plan())
            experiment = prepare(request)
        run_prepared(request, experiment)
        return judge(load_run(folder), 0)


def planted(fault, folder, seed=1, canaries=0):
    """A run with a fault in it, as its folder tells it."""
    # A fault of the books alone needs no run of its own.
    if fault.breaks is Fault.breaks and not fault.patches:
        unbroken = _unbroken(fault.sampling, fault.algorithm, seed, canaries)
        shutil.copytree(unbroken, folder)
    else:
        request = _request(fault.sampling, fault.algorithm, folder, seed, canaries)
        experiment = replace(prepare(request), workers=1)
        with patched(fault.patches):
            run_prepared(request, fault.breaks(experiment))
    fault.tampers(folder)
    return load_run(folder)


@cache
def _unbroken(sampling, algorithm, seed, canaries):
    """A folder with a run that nobody broke."""
    folder = tempfile.mkdtemp(prefix="privplan-")
    atexit.register(shutil.rmtree, folder)
    request = _request(sampling, algorithm, Path(folder), seed, canaries)
    run_prepared(request, prepare(request))
    return folder


def tried(fault, seed=1, canaries=0, *, replay=False):
    """Plant a fault in a folder of its own, and see what the verdict says."""
    with tempfile.TemporaryDirectory(prefix="privplan-") as parent:
        folder = Path(parent) / "run"
        finding = _judged(fault, judge(planted(fault, folder, seed), 0))
        if replay and fault.level != "declared":
            outcome, difference = replayed(folder)
            finding = replace(finding, replayed=outcome, difference=difference)

        # Canaries are clients, and say something of faults that weaken privacy only.
        is_audited = canaries and ALGORITHMS.get(fault.algorithm).unit == "client"
        if is_audited and fault.weakens:
            run = planted(fault, Path(parent) / "audited", seed, canaries)
            seen = next(exceeded(_evidence(run), _planned(run.plan), SEEN), "")
            finding = replace(finding, seen=seen)
    return finding


def replayed(folder):
    """Outcome and reason of ``privplan replay --rounds all`` on a run folder."""
    done = CliRunner().invoke(
        replay_command, [str(folder), "--rounds", "all", "--format", "json"]
    )
    report = ReplayReport.load(folder)
    if done.exit_code != {"passed": 0, "failed": 4, "not shown": 5}[report.outcome]:
        raise AssertionError(done.output)
    return report.outcome, report.reason


def _judged(fault, verdict):
    """What the declared evidence says of a fault."""
    check = {check.name: check for check in verdict.checks}.get(fault.check)
    if check is None:
        failed = [check for check in verdict.checks if check.failed]
        reason = failed[0].reason if failed else ""
        return Finding(fault, verdict.outcome == "broken", reason)
    if fault.level == "not shown":
        return Finding(fault, False, check.reason, missing=fault.words in check.reason)
    is_right = check.failed and fault.words in check.reason
    return Finding(fault, verdict.outcome == "broken" and is_right, check.reason)


def _evidence(run):
    if run.audit is None:
        raise InputError.one("audit", "must be in the run folder", "nothing")
    return run.audit


def _planned(executed):
    """The upper bound that the plan certifies for each group, and its delta."""
    rows = (row for row in executed.certificate if row.guarantee)
    return {row.group: (row.epsilon_upper, row.delta) for row in rows}


@contextmanager
def patched(patches):
    """Attributes replaced while the block runs."""
    before = [(module, name, getattr(module, name)) for module, name, _ in patches]
    try:
        for module, name, replacement in patches:
            setattr(module, name, replacement)
        yield
    finally:
        for module, name, original in before:
            setattr(module, name, original)
