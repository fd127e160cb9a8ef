"""Quick-starts of four frameworks, guarded by lines that docs/adapters.md prints."""

import re
import sys
from itertools import chain
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


def is_import(line):
    return line.startswith(("import ", "from "))


def changed_lines(lines, changes):
    """Lines of a program with the changes of the page, as of a diff without context.

    A removed line says where the lines after it are inserted; until one was removed,
    they are inserted after the last import.
    """
    lines = list(lines)
    position = max(number for number, line in enumerate(lines) if is_import(line)) + 1
    for change in changes:
        line = change[1:]
        if change[0] == "-":
            position = lines.index(line)
            del lines[position]
        else:
            lines.insert(position, line)
            position += 1
    return lines


def write_programs(folder, framework, edits):
    """Write the quick-start's programs with the printed changes, then further edits."""
    programs = {}
    for path in PROGRAMS.glob(f"{framework}_*.txt"):
        name = path.stem.removeprefix(f"{framework}_")
        changes = printed(framework).get(name, ())
        lines = changed_lines(path.read_text().splitlines(), changes)
        programs[name] = "\n".join(lines) + "\n"
    for name, old, new in edits:
        assert old in programs[name]
        programs[name] = programs[name].replace(old, new.rstrip())
    for name, text in programs.items():
        (folder / f"{name}.py").write_text(text)


def program_of(framework):
    """Interpreter and script of a quick-start; Flower's has workers on threads."""
    if framework == "flower":
        script = PROGRAMS.with_name("flower_project") / "started.py"
        return [flower("1.42"), str(script)]
    if framework == "nvflare":
        return [python_of("nvflare-2.9", ("nvflare==2.9.*",)), "job.py"]
    if framework == "opacus":
        return [sys.executable, "mnist.py"]
    return [python_of("pfl-0.6", ("pfl==0.6.*",)), "train.py"]


def started(folder, framework, edits=(), arguments=(), *, less_noise=False):
    """Run the quick-start with its printed changes and further edits.

    Returns the folder of its run, and what it printed.
    """
    write_programs(folder, framework, edits)
    groups, rounds, law = PLANS[framework]
    plan_file = folder / "plan.json"
    plan_of(groups, rounds, delta=1e-3, sampling=law).save(plan_file)
    if less_noise:
        noise = re.compile(r'"noise_multiplier": [\d.]+')
        plan_file.write_text(
            noise.sub('"noise_multiplier": 0.01', plan_file.read_text())
        )
    done = run([*program_of(framework), *arguments], folder)
    return folder / "run", done.stdout + done.stderr


@pytest.mark.parametrize("framework", PLANS)
def test_three_lines_guard_a_quick_start(tmp_path, framework):
    signs = [line[0] for line in chain(*printed(framework).values())]
    assert signs.count("+") <= 3
    assert signs.count("-") <= 3
    folder, output = started(tmp_path, framework)
    assert (folder / "record.json").exists(), output[-2000:]
    the_run = load_run(folder)
    verdict = judge(the_run, 0)
    assert verdict.outcome == "kept"
    assert the_run.record.status == "complete"
    assert all(group.realised_upper == group.planned for group in verdict.groups)


def faulty(folder, kind, fault):
    """Run a quick-start with a fault, whose answer is checked."""
    row = FAULTS[kind][fault]
    message = row.pop("said", "digest: must be")
    folder, output = started(folder, fault.partition(" ")[0], **row)
    assert message in output, output[-2000:]
    return folder


@pytest.mark.parametrize("fault", FAULTS["refused"])
def test_a_fault_is_refused_before_a_release(tmp_path, fault):
    folder = faulty(tmp_path, "refused", fault)
    with pytest.raises(InputError, match=r"must have a release|must be a run folder"):
        load_run(folder)


@pytest.mark.parametrize("fault", FAULTS["harmless"])
def test_a_fault_changes_no_release(tmp_path, fault):
    the_run = load_run(faulty(tmp_path, "harmless", fault))
    assert judge(the_run, 0).outcome == "kept"
    records = the_run.ledger.records
    shares = list(chain.from_iterable(record.shares for record in records))
    assert all(share.largest_norm <= 0.5 for share in shares)
    lost = sum(share.drawn - share.cohort + share.excluded for share in shares)
    assert (lost > 0) == ("lost" in fault)
