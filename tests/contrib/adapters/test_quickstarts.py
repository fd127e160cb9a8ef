"""The quick-starts of four frameworks, guarded by the lines that docs/adapters.md prints."""

import re
import sys
from pathlib import Path

import pytest

from privplan.errors import InputError
from privplan.verification.verify import judge, load_run
from tests.contrib.adapters.environments import ROOT, flower, python_of, run
from tests.guard.plans import plan_of

pytestmark = pytest.mark.slow
PROGRAMS = Path(__file__).with_name("quickstarts")
NAMES = {"flower": "Flower", "nvflare": "NVFlare", "opacus": "Opacus", "pfl": "pfl-research"}
CHANGED = {"flower": ["client_app", "server_app"], "nvflare": ["job"], "opacus": ["mnist"],
           "pfl": ["train"]}  # fmt: skip
PLANS = {
    "flower": ({"strict": (10, 20.0, 0.4, 3.0), "loose": (10, 40.0, 0.4, 1.5)}, 3, "poisson"),
    "nvflare": ({"sites": (2, 60.0, 1.0, 6.0)}, 2, "full"),
    "opacus": ({"records": (200, 9.0, 0.1, 1.1)}, 20, "poisson"),
    "pfl": ({"users": (100, 20.0, 0.2, 2.0)}, 3, "poisson"),
}
SIMULATED = """
import sys
sys.path.append({threads!r})
import threads
from flwr.simulation import run_simulation
settings = {{"fraction-evaluate": 0.5, "num-server-rounds": {rounds}, "learning-rate": 0.1,
             "local-epochs": 1, "batch-size": 10}}
sys.modules["flwr.simulation.run_simulation"].UserConfig = lambda: dict(settings)
import client_app, server_app

def configured(message, context):
    context.run_config.update(settings)
    return client_app.app(message, context)

run_simulation(server_app.app, configured, 20)
"""


def printed(framework):
    """The changed lines that the page prints, for each file."""
    page = (ROOT / "docs" / "adapters.md").read_text()
    part = page.split(f"**{NAMES[framework]}**")[1].split("\n**")[0].split("\nWhat was")[0]
    lines = re.findall("^    ([+-].*)$", part, re.MULTILINE)
    first = lines[:2] if framework == "flower" else lines
    return dict(zip(CHANGED[framework], (first, lines[2:]), strict=False))


def project(folder, framework, edits=()):
    """The quick-start with its printed changes, then the faults."""
    for path in PROGRAMS.glob(f"{framework}_*.txt"):
        name = path.stem.removeprefix(f"{framework}_")
        lines = path.read_text().splitlines()
        at = max(i for i, one in enumerate(lines) if one.startswith(("import ", "from "))) + 1
        for line in printed(framework).get(name, ()):
            if line[0] == "-":
                at = lines.index(line[1:])
                del lines[at]
            else:
                lines.insert(at, line[1:])
                at += 1
        text = "\n".join(lines) + "\n"
        for file, old, new in edits:
            if file == name:
                assert old in text
                text = text.replace(old, new)
        (folder / f"{name}.py").write_text(text)
    groups, rounds, law = PLANS[framework]
    plan = plan_of(groups, rounds, delta=1e-3, sampling=law)
    plan.save(folder / "plan.json")
    for file, old, new in edits:
        if file == "plan":
            text = (folder / "plan.json").read_text()
            assert re.search(old, text)
            (folder / "plan.json").write_text(re.sub(old, new, text))


def started(folder, framework, arguments):
    """Run it as its documentation says, except that Flower's workers are threads."""
    if framework == "flower":
        threads = str(PROGRAMS.with_name("flower_project"))
        rounds = arguments[0] if arguments else 3
        (folder / "simulation.py").write_text(SIMULATED.format(threads=threads, rounds=rounds))
        command = [flower("1.42"), "simulation.py"]
    elif framework == "nvflare":
        command = [python_of("nvflare-2.9", ("nvflare==2.9.*",)), "job.py", *arguments]
    elif framework == "pfl":
        command = [python_of("pfl-0.6", ("pfl==0.6.*",)), "train.py", *arguments]
    else:
        command = [sys.executable, "mnist.py", *arguments]
    return run(command, folder)


@pytest.mark.parametrize("framework", NAMES)
def test_three_lines_guard_a_quick_start(tmp_path, framework):
    lines = [line for part in printed(framework).values() for line in part]
    assert max(sum(line[0] == sign for line in lines) for sign in "+-") <= 3
    project(tmp_path, framework)
    done = started(tmp_path, framework, [])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    run = load_run(tmp_path / "run")
    verdict = judge(run)
    assert (verdict.outcome, run.record.status) == ("kept", "complete")
    assert all(group.realised_upper == group.planned for group in verdict.groups)


LESS_NOISE = [("plan", r'"noise_multiplier": [\d.]+', '"noise_multiplier": 0.01')]
NOT_THE_PLAN = "digest: must be"
SENT, LONGER = (
    "ArrayRecord(model.state_dict())",
    "ArrayRecord({k: 1000 * v for k, v in model.state_dict().items()})",
)
REFUSED = {
    "flower clients that do not clip": (
        [("client_app", "GuardedClientApp as ClientApp", "ClientApp")], [],
        "client: must be a GuardedClientApp of privplan",
    ),
    "flower less noise": (LESS_NOISE, [], NOT_THE_PLAN),
    "nvflare more rounds": ([], ["--num_rounds", "3"], "num_rounds: must be 2, as in pl"),
    "nvflare less noise": (LESS_NOISE, [], NOT_THE_PLAN),
    "opacus no noise": ([], ["--sigma", "0"], "noise_multiplier: must be 1.1, as in the plan"),
    "opacus less noise": (LESS_NOISE, [], NOT_THE_PLAN),
    "opacus clip": ([], ["-c", "5"], "max_grad_norm: must be 0.5, as in the plan, found 5.0"),
    "opacus batches": ([], ["-b", "50"], "batch_size: must be 20, as in the plan, found 50"),
    "opacus lost records": (
        [("mnist", "(200", "(190")], [], "dataset: must have 200 items, as the plan, found 190"
    ),
    "opacus another accountant": (
        [("mnist", "    model, optimizer,", "    privacy_engine.accountant.load_state_dict({})\n"
          "    model, optimizer,")], [], "GuardedEngine has no accountant: what other accountants",
    ),
    "pfl less noise": (LESS_NOISE, [], NOT_THE_PLAN),
    "pfl a mechanism beside it": (
        [("train", "postprocessors=[]", "postprocessors=[central_privacy]")], [],
        "postprocessors: must have no privacy mechanism",
    ),
    "pfl clipping undone": (
        [("train", "\nsimulated_backend", """
class Longer(SumAggregator):
    def accumulate(self, *, accumulated, user_stats):
        longer = user_stats.apply_elementwise(lambda one: 100 * one)
        return super().accumulate(accumulated=accumulated, user_stats=longer)


simulated_backend"""), ("train", "sors=[],", "sors=[], aggregator=Longer(),"),
         ("train", "import SimulatedBackend",
          "import SimulatedBackend\nfrom pfl.aggregate.base import SumAggregator")], [],
        "postprocessors: must change nothing after GuardedMechanism",
    ),
}  # fmt: skip
HARMLESS = {
    "flower more rounds": ([], ["4"], "round: must be one of the 3 planned rounds, found 4"),
    "flower longer updates": ([("client_app", SENT, LONGER)], [], "drawn clients reported"),
    "flower lost clients": (
        [("client_app", "    model, trainloader", "    assert context.node_config['partition-id']"
          " % 3\n    model, trainloader")], [], "failed: <class 'AssertionError'>",
    ),
    "nvflare longer updates": (
        [("client", "params=model.cpu().state_dict()",
          "params={k: 1000 * v for k, v in model.state_dict().items()}")], [], "params_type",
    ),
    "nvflare a lost site": (
        [("client", "    while ", "    assert client_name != 'site-2'\n    while ")], [], "site-2",
    ),
    "opacus more epochs": ([], ["-n", "3"], "must be one of the 20 planned rounds, found 21"),
    "pfl more rounds": (
        [], ["--central_num_iterations", "4"], "round: must be one of the 3 planned rounds, found 4"
    ),
    "pfl lost users": ([("train", "\nsampler,", "\nimages[:100] = np.nan\nsampler,")], [], "nan"),
}  # fmt: skip


@pytest.mark.parametrize("fault", REFUSED)
def test_a_fault_is_refused_before_a_release(tmp_path, fault):
    edits, arguments, said = REFUSED[fault]
    project(tmp_path, fault.partition(" ")[0], edits)
    done = started(tmp_path, fault.partition(" ")[0], arguments)
    assert said in done.stdout + done.stderr
    with pytest.raises(InputError, match=r"must have a release|must be a run folder"):
        load_run(tmp_path / "run")


@pytest.mark.parametrize("fault", HARMLESS)
def test_a_fault_changes_no_release(tmp_path, fault):
    edits, arguments, said = HARMLESS[fault]
    project(tmp_path, fault.partition(" ")[0], edits)
    done = started(tmp_path, fault.partition(" ")[0], arguments)
    assert said in done.stdout + done.stderr
    run = load_run(tmp_path / "run")
    assert judge(run).outcome == "kept"
    shares = [share for record in run.ledger.records for share in record.shares]
    assert all(share.largest_norm <= 0.5 for share in shares)
    counted = sum(share.drawn - share.cohort + share.excluded for share in shares)
    assert (counted > 0) == ("lost" in fault)


def test_a_run_that_lost_all_clients_is_not_kept(tmp_path):
    project(
        tmp_path,
        "flower",
        [("client_app", "    model, trainloader", "    raise OSError\n    model, trainloader")],
    )
    started(tmp_path, "flower", [])
    run = load_run(tmp_path / "run")
    assert [record.failure for record in run.ledger.records] != []
    assert judge(run).outcome == "unverified"
