"""Replay agrees with honest runs, and names what differs in others."""

from __future__ import annotations

import ast
import io
import json
import random
import shlex
import subprocess
import sys
import tokenize
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from privplan.errors import InputError
from privplan.evidence import CLIENTS, EVIDENCE, VECTORS, read_evidence
from privplan.io.text import load_yaml
from privplan.ledger import chained
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.record import LEDGER, PLAN, RunRecord
from privplan.replayed import REPLAY, ReplayReport
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from simulate.cli.replay import command
from simulate.replay.lines import World, planned_lines
from simulate.replay.replay import Replay
from simulate.runs import evidence as evidence_writer
from simulate.runs.request import Request
from simulate.runs.run import InterruptedRunError, execute
from simulate.server_optimisers.registry import SERVER_OPTIMISERS

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "simulate" / "replay"
ROUNDS = 3
ALLOWED = (
    "simulate.own_parts",
    "simulate.tasks",
    "privplan.errors",
    "privplan.evidence",
    "privplan.ledger",
    "privplan.replayed",
    "privplan.plan",
    "privplan.planning.weights",  # the plan's factors on sums, as formulas
    "privplan.record",
    "privplan.accounting.release",
    "privplan.discrete_gaussian",  # the sampler of a law and the streams of a key: primitives
    "privplan.secure_streams",
    "simulate.data",
    "simulate.models",
    "simulate.replay",
)


PLANNING = {
    "per_group": {"ratios": "uniform", "weights": "inverse_variance", "accountant": "rdp"},
    "joint": {"ratios": "balanced", "accountant": "rdp"},
    "quantile": {"ratios": "balanced", "accountant": "rdp", "clipping": {"quantile": 0.6}},
    "quantiles": {
        "ratios": "uniform",
        "accountant": "rdp",
        "clipping": {"quantile": 0.6},
        "sparsification": [0.5, 0.6, 0.7],
    },
}


@cache
def short_plan(
    sampling: str = "poisson", planning: str = "per_group", server: str = "", averaging: str = ""
) -> Plan:
    """Three rounds on the digits with a bound that some updates exceed."""
    data = dict(load_yaml(preset("digits"), "spec"))
    data |= {"rounds": ROUNDS, "clipping_norm": 0.5, "sampling": sampling}
    data["planning"] = PLANNING[planning]
    data |= {"server": {"optimizer": server}} if server else {}
    data |= {"averaging": {"method": averaging}} if averaging else {}
    if sampling == "full":
        data["cohort"] = sum(group["clients"] for group in data["groups"])
    return solve(Spec.parse(data), second_opinion=False)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of an honest run of GDPFed+."""
    folder = tmp_path / "run"
    execute(Request(short_plan(), "GDPFed+", "digits", folder, seed=3))
    return folder


def replayed(folder: Path, rounds: int | None = None, seed: int | None = None) -> ReplayReport:
    return Replay(folder).run(rounds, seed, lambda done, total: None)


def comparison(report: ReplayReport, name: str) -> tuple[int, int]:
    [one] = [one for one in report.comparisons if one.name == name]
    return one.compared, one.differ


@pytest.mark.parametrize(
    ("algorithm", "sampling"),
    [
        ("FedAvg", "poisson"),
        ("DP-FedAvg", "fixed_size"),
        ("GDPFed", "fixed_size"),
        ("GDPFed-op", "poisson"),
        ("planned", "poisson"),
        ("DPFedAvg", "poisson"),
    ],
)
def test_an_honest_run_passes(algorithm: str, sampling: str, tmp_path: Path) -> None:
    execute(Request(short_plan(sampling), algorithm, "digits", tmp_path / "run", seed=3))
    rounds = 1 if algorithm == "DPFedAvg" else ROUNDS
    report = replayed(tmp_path / "run", rounds)
    assert report.outcome == "passed", report.reason
    assert comparison(report, "model") == (rounds, 0)
    assert comparison(report, "accuracy") == (1, 0)
    assert max(one.largest for one in report.comparisons if one.name != "accuracy") < 1e-5


@pytest.mark.parametrize("planning", ["joint", "quantile"])
def test_a_joint_plan_passes(planning: str, tmp_path: Path) -> None:
    plan = short_plan(planning=planning)
    assert plan.release == "joint"
    assert (plan.clipping is not None) == (planning == "quantile")
    execute(Request(plan, "planned", "digits", tmp_path / "run", seed=3))
    report = replayed(tmp_path / "run")
    assert report.outcome == "passed", report.reason
    if planning == "quantile":
        assert comparison(report, "clipping_norm") == (ROUNDS, 0)


@pytest.mark.parametrize("algorithm", ["DP-FedAvg", "GDPFed+", "FedAvg"])
def test_a_paid_quantile_of_each_method_is_replayed(algorithm: str, tmp_path: Path) -> None:
    execute(Request(short_plan(planning="quantiles"), algorithm, "digits", tmp_path / "run"))
    report = replayed(tmp_path / "run")
    assert report.outcome == "passed", report.reason
    assert comparison(report, "model") == (ROUNDS, 0)
    if algorithm != "FedAvg":
        assert comparison(report, "clipping_norm") == (ROUNDS, 0)


@pytest.mark.parametrize(
    ("server", "averaging", "algorithm", "planning"),
    [
        ("sgd", "tail", "FedAvg", "joint"),
        ("momentum", "ema", "planned", "quantile"),
        ("momentum", "", "GDPFed+", "per_group"),
        ("adagrad", "", "DP-FedAvg", "joint"),
        ("adam", "ema", "planned", "joint"),
        ("yogi", "", "planned", "joint"),
    ],
)
def test_server_optimisers_and_averages_are_replayed(
    server: str, averaging: str, algorithm: str, planning: str, tmp_path: Path
) -> None:
    plan = short_plan("poisson", planning, server, averaging)
    execute(Request(plan, algorithm, "digits", tmp_path / "run", seed=3))
    report = replayed(tmp_path / "run")
    assert report.outcome == "passed", report.reason
    assert comparison(report, "model") == (ROUNDS, 0)
    assert comparison(report, "accuracy") == (1, 0)
    if server == "momentum":
        assert comparison(report, "velocity") == (ROUNDS, 0)
    if averaging:
        assert comparison(report, "averaged_model") == (ROUNDS, 0)


def test_a_server_that_took_another_step_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = short_plan("poisson", "joint", "momentum")
    make = SERVER_OPTIMISERS.get("momentum")
    halved = {"momentum": 0.45}
    monkeypatch.setitem(
        SERVER_OPTIMISERS._components,
        "momentum",
        lambda options: make(options.model_copy(update=halved)),
    )
    execute(Request(plan, "planned", "digits", tmp_path / "run", seed=3))
    report = replayed(tmp_path / "run")
    assert report.outcome == "failed"
    assert {one.name for one in report.differences} == {"model", "velocity"}
    assert {one.round for one in report.differences} == {2, 3}


def test_full_participation_with_label_skew_passes(tmp_path: Path) -> None:
    request = Request(
        short_plan("full"), "GDPFed+", "digits", tmp_path / "run", partition="dirichlet:0.3"
    )
    execute(request)
    assert replayed(tmp_path / "run", rounds=1).outcome == "passed"


def test_rounds_are_selected_afresh_and_again_by_seed(run: Path) -> None:
    first, again = replayed(run, 1), replayed(run, 1)
    assert first.selection_seed != again.selection_seed
    assert replayed(run, 1, first.selection_seed).rounds == first.rounds
    assert len(first.rounds) == 1
    assert first.of == ROUNDS


def test_rounds_between_stored_models_are_reached_from_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence_writer, "MOST_BYTES", 2 * 2410 * 4)
    folder = tmp_path / "run"
    execute(Request(short_plan(), "DP-FedAvg", "digits", folder, seed=3))
    evidence = read_evidence(folder, Plan.load(folder / PLAN).digest)
    assert evidence is not None
    assert evidence.header.models_every == 2
    assert [evidence.rounds[one].model_at is None for one in (1, 2, 3)] == [True, False, False]
    report = replayed(folder)
    assert report.outcome == "passed", report.reason
    assert comparison(report, "model") == (2, 0)


def forge(folder: Path) -> None:
    """A complete run folder from the plan and random numbers; nothing is trained."""
    plan, source, chain, text = short_plan(), random.Random(1), "", ""
    folder.mkdir()
    plan.save(folder / PLAN)
    chain = plan.digest
    for round_ in range(1, ROUNDS + 1):
        for group in plan.groups:
            chosen = [one for one in range(group.clients) if source.random() < group.sampling_ratio]
            norm, std = plan.clip_bound(group), plan.clip_bound(group) * group.noise_multiplier
            line = {
                "round": round_, "family": "gaussian", "noise_std": std, "dimension": 2410,
                "noise_sum_squares": std**2 * 2410 * (1 + 0.01 * source.gauss(0, 1)),
                "noise_state": f"{source.getrandbits(96):024x}",
                "shares": [{
                    "group": group.name, "clients": group.clients, "sampling": "poisson",
                    "sampling_ratio": group.sampling_ratio, "cohort": len(chosen),
                    "participants": chosen, "clip_bound": norm, "largest_norm": norm * 0.999999,
                    "clipped": len(chosen), "weight": group.weight / group.expected_cohort,
                }],
            }  # fmt: skip
            record = planned_record(line)
            written, chain = chained(record, chain)
            text += written
    (folder / LEDGER).write_text(text)
    RunRecord(
        plan_digest=plan.digest, algorithm="planned", dataset="digits", partition="iid",
        model="mlp-digits", seed=3, device="cpu", versions={}, status="complete",
        configuration={"aggregation": "paper", "data": digits_digest(), "canaries": 0},
        rounds_done=ROUNDS, metrics=(), accuracy=0.999, accuracy_by_class={},
        accuracy_by_group={}, wall_seconds=10.0, chain=chain,
    ).save(folder)  # fmt: skip


def planned_record(data: dict[str, object]):
    from privplan.record import ReleaseRecord

    return ReleaseRecord.model_validate(data)


@cache
def digits_digest() -> str:
    from simulate.data.registry import load

    return load("digits").digest


def test_a_run_that_never_happened_fails(tmp_path: Path) -> None:
    forge(tmp_path / "run")
    report = replayed(tmp_path / "run", rounds=1)
    assert report.outcome == "failed"
    names = {one.name for one in report.differences}
    assert {"participants", "noise_state", "noise_sum_squares"} <= names
    done = CliRunner().invoke(command, [str(tmp_path / "run"), "--rounds", "1"])
    assert done.exit_code == 4, done.output


def test_an_accuracy_that_was_not_reached_fails(run: Path) -> None:
    RunRecord.load(run).model_copy(update={"accuracy": 0.999}).save(run)
    report = replayed(run, rounds=1)
    assert report.outcome == "failed"
    assert [one.name for one in report.differences] == ["accuracy"]


def test_a_changed_vector_does_not_have_its_hash(run: Path) -> None:
    content = bytearray((run / VECTORS).read_bytes())
    content[43] ^= 64  # in the initial model
    (run / VECTORS).write_bytes(bytes(content))
    report = replayed(run)
    assert report.outcome == "failed"
    assert {"stored vector's hash", "initial model"} <= {one.name for one in report.differences}


@pytest.mark.parametrize("name", [VECTORS, CLIENTS])
def test_a_damaged_file_is_one_line(name: str, run: Path) -> None:
    (run / name).write_bytes((run / name).read_bytes()[:50])
    with pytest.raises(InputError, match=r"^(vectors|clients): must "):
        replayed(run)


def test_without_evidence_nothing_is_shown_and_nothing_differs(run: Path) -> None:
    for name in (EVIDENCE, VECTORS, CLIENTS):
        (run / name).unlink()
    done = CliRunner().invoke(command, [str(run), "--rounds", "all"])
    assert done.exit_code == 5, done.output
    report = ReplayReport.load(run)
    assert report.outcome == "not shown"
    assert "evidence.jsonl" in report.reason
    assert comparison(report, "noise_sum_squares") == (3 * ROUNDS, 0)


def test_an_algorithm_that_is_not_supported_is_not_shown(tmp_path: Path) -> None:
    execute(Request(short_plan(), "CENTAUR", "digits", tmp_path / "run"))
    report = replayed(tmp_path / "run")
    assert (report.outcome, report.exit_code) == ("not shown", 5)
    assert "a run with CENTAUR" in report.reason


def test_other_data_are_refused(run: Path) -> None:
    record = RunRecord.load(run)
    changed = {**record.configuration, "data": "0" * 64}
    record.model_copy(update={"configuration": changed}).save(run)
    with pytest.raises(InputError, match=r"^dataset: must be the data of the run"):
        replayed(run)


@pytest.mark.parametrize("missing", ["folder", PLAN, "record.json", LEDGER])
def test_no_run_is_one_line(missing: str, run: Path) -> None:
    folder = run / "nothing" if missing == "folder" else run
    if missing != "folder":
        (run / missing).unlink()
    with pytest.raises(InputError, match=": must be a file that exists"):
        replayed(folder)


@pytest.mark.parametrize("rounds", ["0", "-1", "some", "1.5", ""])
def test_a_number_of_rounds_is_refused(rounds: str) -> None:
    done = CliRunner().invoke(command, ["run", f"--rounds={rounds}"])
    assert done.exit_code == 2
    assert "must be a number from 1 or all" in done.output


def test_an_interrupted_run_has_the_evidence_of_the_whole_run(run: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    request = Request(short_plan(), "GDPFed+", "digits", tmp_path / "other", seed=3)
    with pytest.raises(InterruptedRunError):
        execute(request, stop)
    execute(request)
    for name in (EVIDENCE, VECTORS, CLIENTS):
        assert (tmp_path / "other" / name).read_bytes() == (run / name).read_bytes(), name


def test_the_package_imports_no_part_of_the_engine() -> None:
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                own = name.partition(".")[0] in ("privplan", "simulate")
                assert not own or name.startswith(ALLOWED), (path.name, name)


def code_lines(source: str) -> int:
    """Lines with code: neither blank nor only a comment or a docstring."""
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (*blank, tokenize.ENDMARKER):
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def test_the_program_is_small() -> None:
    assert code_lines('"""One."""\n\nx = (  # comment\n    1,\n)\n# two\n') == 3
    assert sum(code_lines(path.read_text()) for path in PACKAGE.glob("*.py")) <= 600


def test_the_engine_is_not_loaded_by_an_import_of_an_import() -> None:
    code = "import sys, simulate.replay.replay; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = [name for name in done.stdout.split() if name.startswith("simulate.")]
    parts = ("engine", "mechanisms", "local", "aggregators", "algorithms", "runs", "parallel")
    found = {name for name in loaded if name.split(".")[1] in parts}
    assert found <= {"simulate.engine", "simulate.engine.seeds"}  # streams of the partition
    assert not {"simulate.samplers", "simulate.transforms", "simulate.server"} & set(loaded)
    assert "privplan.verification.verify" not in done.stdout.split()


def test_the_example_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "replay.md").read_text()
    commands = [
        shlex.split(line, comments=True)[1:]
        for block in page.split("```bash\n")[1:]
        for line in block.split("```")[0].splitlines()
    ]
    monkeypatch.chdir(tmp_path)
    short_plan().save(tmp_path / "plan.json")
    from simulate.cli.simulate import command as simulate

    known = {"simulate": simulate, "replay": command}
    for name, *arguments in commands:
        done = CliRunner().invoke(known[name], arguments)
        assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "run" / REPLAY).read_text())
    assert report["outcome"] == "passed"
    for field in report:
        assert f"`{field}`" in page or field == "schema_version", field


def test_planned_lines_need_no_training(run: Path) -> None:
    world = Replay(run).world
    assert isinstance(world, World)
    lines = planned_lines(world, 1)
    assert [len(line.parts) for line in lines] == [1, 1, 1]
    assert all(np.isfinite(line.record.noise_std) for line in lines)
