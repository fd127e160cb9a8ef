"""The quick-starts of four frameworks, guarded by the lines that docs/adapters.md prints."""

import re
import sys
from pathlib import Path

import pytest
import yaml

from privplan.errors import InputError
from privplan.verification.verify import judge, load_run
from tests.contrib.adapters.environments import ROOT, flower, python_of, run
from tests.guard.plans import plan_of

pytestmark = pytest.mark.slow
PROGRAMS = Path(__file__).with_name("quickstarts")
FAULTS = yaml.safe_load((PROGRAMS / "faults.yaml").read_text())
TITLES = {
    "flower": "Flower",
    "nvflare": "NVFlare",
    "opacus": "Opacus",
    "pfl": "pfl-research",
}
CHANGED = {"nvflare": "job", "opacus": "mnist", "pfl": "train"}
PLANS = {
    "flower": (
        {"strict": (10, 20.0, 0.4, 3.0), "loose": (10, 40.0, 0.4, 1.5)},
        3,
        "poisson",
    ),
    "nvflare": ({"sites": (2, 60.0, 1.0, 6.0)}, 2, "full"),
    "opacus": ({"records": (200, 9.0, 0.1, 1.1)}, 20, "poisson"),
    "pfl": ({"users": (100, 20.0, 0.2, 2.0)}, 3, "poisson"),
}


def printed(framework):
    """The changed lines that the page prints, for each file."""
    page = (ROOT / "docs" / "adapters.md").read_text()
    part = (
        page.split(f"**{TITLES[framework]}**")[1]
        .split("\n**")[0]
        .split("\nWhat was")[0]
    )
    lines = re.findall("^    ([+-].*)$", part, re.MULTILINE)
    if framework == "flower":
        return {"client_app": lines[:2], "server_app": lines[2:]}
    return {CHANGED[framework]: lines}


def started(folder, framework, edits=(), arguments=(), *, less_noise=False):
    """Run the quick-start with its printed changes and further edits; Flower's workers on threads.

    Returns what it printed, after the folder of its run.
    """
    programs = {}
    for path in PROGRAMS.glob(f"{framework}_*.txt"):
        name, lines = (
            path.stem.removeprefix(f"{framework}_"),
            path.read_text().splitlines(),
        )
        at = (
            max(
                i for i, one in enumerate(lines) if one.startswith(("import ", "from "))
            )
            + 1
        )
        for line in printed(framework).get(name, ()):
            if line[0] == "-":
                at = lines.index(line[1:])
                del lines[at]
            else:
                lines.insert(at, line[1:])
                at += 1
        programs[name] = "\n".join(lines) + "\n"
    for name, old, new in edits:
        assert old in programs[name]
        programs[name] = programs[name].replace(old, new.rstrip())
    for name, text in programs.items():
        (folder / f"{name}.py").write_text(text)
    groups, rounds, law = PLANS[framework]
    plan_of(groups, rounds, delta=1e-3, sampling=law).save(folder / "plan.json")
    if less_noise:
        text = (folder / "plan.json").read_text()
        changed = re.sub(
            r'"noise_multiplier": [\d.]+', '"noise_multiplier": 0.01', text
        )
        (folder / "plan.json").write_text(changed)
    python, program = {
        "flower": lambda: (
            flower("1.42"),
            str(PROGRAMS.with_name("flower_project") / "started.py"),
        ),
        "nvflare": lambda: (python_of("nvflare-2.9", ("nvflare==2.9.*",)), "job.py"),
        "opacus": lambda: (sys.executable, "mnist.py"),
        "pfl": lambda: (python_of("pfl-0.6", ("pfl==0.6.*",)), "train.py"),
    }[framework]()
    done = run([python, program, *arguments], folder)
    return folder / "run", done.stdout + done.stderr


@pytest.mark.parametrize("framework", PLANS)
def test_three_lines_guard_a_quick_start(tmp_path, framework):
    lines = [line for part in printed(framework).values() for line in part]
    assert max(sum(line[0] == sign for line in lines) for sign in "+-") <= 3
    folder, output = started(tmp_path, framework)
    assert (folder / "record.json").exists(), output[-2000:]
    found = load_run(folder)
    verdict = judge(found, 0)
    assert (verdict.outcome, found.record.status) == ("kept", "complete")
    assert all(group.realised_upper == group.planned for group in verdict.groups)


def faulty(folder, kind, fault):
    """Run a quick-start with a fault, whose answer is checked."""
    row = FAULTS[kind][fault]
    said = row.pop("said", "digest: must be")
    folder, output = started(folder, fault.partition(" ")[0], **row)
    assert said in output, output[-2000:]
    return folder


@pytest.mark.parametrize("fault", FAULTS["refused"])
def test_a_fault_is_refused_before_a_release(tmp_path, fault):
    folder = faulty(tmp_path, "refused", fault)
    with pytest.raises(InputError, match=r"must have a release|must be a run folder"):
        load_run(folder)


@pytest.mark.parametrize("fault", FAULTS["harmless"])
def test_a_fault_changes_no_release(tmp_path, fault):
    found = load_run(faulty(tmp_path, "harmless", fault))
    assert judge(found, 0).outcome == "kept"
    shares = [share for record in found.ledger.records for share in record.shares]
    assert all(share.largest_norm <= 0.5 for share in shares)
    lost = sum(share.drawn - share.cohort + share.excluded for share in shares)
    assert (lost > 0) == ("lost" in fault)


@pytest.mark.parametrize("fault", FAULTS["failed"])
def test_rounds_without_any_client_are_booked_as_failed(tmp_path, fault):
    found = load_run(faulty(tmp_path, "failed", fault))
    assert [bool(record.failure) for record in found.ledger.records] == [True] * 3
    assert judge(found, 0).outcome == "unverified"
