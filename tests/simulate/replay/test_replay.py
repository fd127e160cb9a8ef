"""Replay agrees with honest runs, names what differs, and says what it cannot show."""

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import simulate
from privplan import releases
from privplan.errors import InputError
from privplan.evidence.clients import CLIENTS
from privplan.evidence.replay import ReplayReport
from privplan.evidence.rounds import EVIDENCE, VECTORS, read_evidence
from privplan.ledger import chained
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.record import LEDGER, PLAN, ReleaseRecord, RunRecord
from privplan.releases import NOT_STORED
from privplan.spec.spec import Spec
from privplan.verification.verify import judge, load_run
from simulate.algorithms.registry import Hyperparameters
from simulate.data.registry import load
from simulate.engine import round as engine_round
from simulate.replay.lines import planned_lines
from simulate.replay.model import final_vector
from simulate.replay.replay import Replay
from simulate.runs import checkpoint, evidence_writer
from simulate.runs.request import Request
from simulate.runs.run import InterruptedRunError, execute
from simulate.server import SERVER_OPTIMISERS
from tests.command import privplan
from tests.simulate.conftest import interrupt
from tests.simulate.own_runs import PARAMETERS, Net
from tests.simulate.replay.runs import (
    ROUNDS,
    comparison,
    names_of,
    replayed,
    short_plan,
)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("honest") / "run"
    execute(Request(short_plan(), "GDPFed+", "digits", folder, seed=3))
    return folder


@pytest.fixture
def run(honest, tmp_path):
    """A copy of the folder of an honest run of GDPFed+."""
    return Path(shutil.copytree(honest, tmp_path / "run"))


HONEST = [
    ("FedAvg", "clipped"),
    ("DP-FedAvg", {"sampling": "fixed_size"}),
    ("GDPFed+", {"server": "momentum"}),
    ("planned", {"planning": "quantile", "server": "momentum", "averaging": "ema"}),
]
SLOW_HONEST = [
    ("FedAvg", {}),
    ("GDPFed", {"sampling": "fixed_size"}),
    ("GDPFed-op", {}),
    ("DPFedAvg", {}),
    ("planned", {}),
    ("planned", {"planning": "joint"}),
    ("planned", {"planning": "quantile"}),
    ("DP-FedAvg", {"planning": "quantiles"}),
    ("GDPFed+", {"planning": "quantiles"}),
    ("FedAvg", {"planning": "quantiles"}),
    ("FedAvg", {"planning": "joint", "server": "sgd", "averaging": "tail"}),
    ("DP-FedAvg", {"planning": "joint", "server": "adagrad"}),
    ("planned", {"planning": "joint", "server": "adam", "averaging": "ema"}),
    ("planned", {"planning": "joint", "server": "yogi"}),
]
"""Algorithms, and what their plans are made with."""


@pytest.mark.parametrize(
    ("algorithm", "planning"),
    [*HONEST, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW_HONEST)],
)
def test_an_honest_run_passes(algorithm, planning, tmp_path):
    numbers = {}
    if planning == "clipped":
        planning = {}
        numbers = {"clipped": 1}
    request = Request(
        short_plan(**planning),
        algorithm,
        "digits",
        tmp_path / "run",
        seed=3,
        own_unit=True,
        hyperparameters=Hyperparameters(values=numbers),
    )
    execute(request)
    rounds = 1 if algorithm == "DPFedAvg" else ROUNDS
    report = replayed(tmp_path / "run", rounds)
    assert report.outcome == "passed", report.reason
    assert comparison(report, "accuracy") == (1, 0)
    assert comparison(report, "metrics")[1] == 0
    assert report.deviation < 1e-4
    final = final_vector(tmp_path / "run")
    end = checkpoint.load(tmp_path / "run", torch.device("cpu"))
    if end is not None:
        assert torch.equal(final.state.theta, end.theta)
    assert final.initial == "recomputed"


def test_a_server_that_took_another_step_is_found(tmp_path, monkeypatch):
    """Clients then start from a model that is not that of the releases."""
    plan = short_plan("poisson", "joint", "momentum")
    make = SERVER_OPTIMISERS.get("momentum")

    def halved(options):
        return make(options.model_copy(update={"momentum": 0.45}))

    with monkeypatch.context() as patched:
        patched.setitem(SERVER_OPTIMISERS._components, "momentum", halved)
        execute(Request(plan, "planned", "digits", tmp_path / "run", seed=3))
    report = replayed(tmp_path / "run")
    assert report.outcome == "failed"
    assert "releases" in names_of(report.differences)
    assert 3 in {difference.round for difference in report.differences}


def test_rounds_are_selected_afresh_and_again_by_seed(run):
    report = replayed(run, 1)
    assert report.selection_seed != replayed(run, 1).selection_seed
    assert replayed(run, 1, report.selection_seed).rounds == report.rounds
    assert len(report.rounds) == 1
    assert report.rounds_of_run == ROUNDS


def test_releases_that_are_not_stored_are_replaced_by_those_of_all_rounds(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(releases, "MOST_BYTES", 2 * 2410 * 4)
    folder = tmp_path / "run"
    execute(Request(short_plan(), "DP-FedAvg", "digits", folder, seed=3))
    evidence = read_evidence(folder, Plan.load(folder / PLAN).digest)
    assert evidence.header.stored is False
    assert (folder / VECTORS).stat().st_size == 2410 * 4
    assert judge(load_run(folder), 0).kept
    report = replayed(folder, 1, seed=1)
    assert report.outcome == "not shown"
    assert report.reason == f"missing: {NOT_STORED}"
    report_of_all = replayed(folder)
    assert report_of_all.outcome == "passed", report_of_all.reason
    assert comparison(report_of_all, "accuracy") == (1, 0)
    with pytest.raises(InputError, match="releases: must be stored"):
        final_vector(folder)


def test_an_interrupted_run_has_the_evidence_of_the_whole_run(run, tmp_path):
    request = Request(short_plan(), "GDPFed+", "digits", tmp_path / "other", seed=3)
    interrupt(request, 2)
    execute(request)
    for name in (EVIDENCE, VECTORS, CLIENTS):
        content = (tmp_path / "other" / name).read_bytes()
        assert content == (run / name).read_bytes(), name


def test_a_run_whose_evidence_is_lost_does_not_go_on(tmp_path):
    """Nobody could compute the releases of the rounds that are done."""
    request = Request(short_plan(), "GDPFed+", "digits", tmp_path / "run", seed=3)
    interrupt(request, 2)
    (tmp_path / "run" / EVIDENCE).unlink()
    with pytest.raises(InputError, match="releases of the 2 rounds that are done"):
        execute(request)


@pytest.mark.parametrize("written", [0, 100, None])
def test_an_interrupt_while_evidence_is_written_loses_none(
    written, run, tmp_path, monkeypatch
):
    """After none, some bytes, or all of a round's evidence; the round is repeated."""
    folder = tmp_path / "other"
    append = evidence_writer.EvidenceWriter.append

    def stop(self, progress):
        if progress.round < 2 or written is None:
            append(self, progress)
        if progress.round == 2:
            with open(folder / VECTORS, "ab") as file:
                file.write(bytes(written or 0))
            raise KeyboardInterrupt

    request = Request(short_plan(), "GDPFed+", "digits", folder, seed=3)
    with monkeypatch.context() as patched:
        patched.setattr(evidence_writer.EvidenceWriter, "append", stop)
        with pytest.raises(InterruptedRunError, match="1 of 3 rounds"):
            execute(request)
    execute(request)
    for name in (EVIDENCE, VECTORS, CLIENTS, LEDGER):
        assert (folder / name).read_bytes() == (run / name).read_bytes(), name


def forged_line(plan, group, round_, source):
    """A release of a group, from random numbers."""
    cohort = [
        position
        for position in range(group.clients)
        if source.random() < group.sampling_ratio
    ]
    norm = plan.clip_bound(group)
    std = norm * group.noise_multiplier
    share = {
        "group": group.name,
        "clients": group.clients,
        "sampling": "poisson",
        "sampling_ratio": group.sampling_ratio,
        "cohort": len(cohort),
        "participants": cohort,
        "clip_bound": norm,
        "largest_norm": norm * 0.999999,
        "clipped": len(cohort),
        "weight": group.weight / group.expected_cohort,
    }
    line = {
        "round": round_,
        "family": "gaussian",
        "noise_std": std,
        "dimension": 2410,
        "noise_sum_squares": std**2 * 2410 * (1 + 0.01 * source.gauss(0, 1)),
        "noise_state": f"{source.getrandbits(96):024x}",
        "shares": [share],
    }
    return ReleaseRecord.model_validate(line)


def forge(folder):
    """A complete run folder from the plan and random numbers; nothing is trained."""
    plan = short_plan()
    folder.mkdir()
    plan.save(folder / PLAN)
    source = random.Random(1)
    chain = plan.digest
    text = ""
    for round_ in range(1, ROUNDS + 1):
        for group in plan.groups:
            line, chain = chained(forged_line(plan, group, round_, source), chain)
            text += line
    (folder / LEDGER).write_text(text)
    settings = {"aggregation": "paper", "data": load("digits").digest, "canaries": 0}
    record = RunRecord(
        plan_digest=plan.digest,
        algorithm="planned",
        dataset="digits",
        partition="iid",
        model="mlp-digits",
        seed=3,
        device="cpu",
        versions={},
        status="complete",
        configuration=settings,
        rounds_done=ROUNDS,
        metrics=(),
        accuracy=0.999,
        accuracy_by_class={},
        accuracy_by_group={},
        wall_seconds=10.0,
        chain=chain,
    )
    record.save(folder)


def test_a_run_that_never_happened_fails(tmp_path):
    forge(tmp_path / "run")
    report = replayed(tmp_path / "run", rounds=1)
    assert report.outcome == "failed"
    differing = names_of(report.differences)
    assert {"participants", "noise_state", "cohort"} <= differing
    assert privplan("replay", tmp_path / "run", "--rounds", 1).exit_code == 4


EDITS = {
    "accuracy": {"accuracy": 0.999},
    "accuracy_by_class": {"accuracy_by_class": {"3": 0.99}},
    "accuracy_by_group": {"accuracy_by_group": {"strict": 0.99}},
    "rounds done": {"rounds_done": 1},
    "evaluated rounds": {"metrics": ()},
}


@pytest.mark.parametrize("name", EDITS)
def test_a_record_that_was_edited_fails(name, run):
    RunRecord.load(run).model_copy(update=EDITS[name]).save(run)
    report = replayed(run, rounds=1)
    assert report.outcome == "failed"
    assert names_of(report.differences) == {name}


@pytest.mark.parametrize(
    "field", ["accuracy", pytest.param("loss", marks=pytest.mark.slow)]
)
def test_an_evaluation_of_any_round_that_was_not_reached_fails(field, run):
    record = RunRecord.load(run)
    assert [point.round for point in record.metrics] == [1, 2, 3]
    for index, point in enumerate(record.metrics):
        changed = [*record.metrics]
        changed[index] = point.model_copy(update={field: 0.99})
        record.model_copy(update={"metrics": tuple(changed)}).save(run)
        [difference] = replayed(run, rounds=1).differences
        assert difference.round == point.round
        assert difference.name == "metrics"


def test_a_replay_counts_for_the_record_that_it_was_made_of(run):
    report = replayed(run, rounds=1)
    report.save(run)
    assert judge(load_run(run), 0).earlier == 1
    assert "replayed" not in judge(load_run(run), 0).evidence
    assert "replayed" in judge(load_run(run), 1).evidence
    record = RunRecord.load(run)
    record.model_copy(update={"wall_seconds": 7.0}).save(run)
    assert judge(load_run(run), 0).earlier == 1
    record.model_copy(update={"algorithm": "another"}).save(run)
    verdict = judge(load_run(run), 0)
    assert [check.name for check in verdict.failed] == ["replay"]
    assert "replayed" not in verdict.evidence
    # It is of another record, so the earlier one goes.
    assert replayed(run).save(run).outcome == "not shown"
    record.save(run)
    report.model_copy(update={"record": ""}).save(run)
    assert judge(load_run(run), 0).earlier == 0


def test_a_difference_stays_until_all_rounds_agree(run):
    report = replayed(run, rounds=1)
    wrong = report.model_copy(update={"outcome": "failed"})
    assert report.joined(wrong).outcome == "failed"
    assert replayed(run).joined(wrong).outcome == "passed"


def test_a_changed_vector_does_not_have_its_hash(run):
    content = bytearray((run / VECTORS).read_bytes())
    content[43] ^= 64  # in the initial model
    (run / VECTORS).write_bytes(bytes(content))
    report = replayed(run)
    assert report.outcome == "failed"
    assert {"stored vectors"} == names_of(report.differences)
    assert judge(load_run(run), 0).outcome == "broken"
    rule = "vectors: must have the recorded digest of initial vector"
    with pytest.raises(InputError, match=rule):
        final_vector(run)


@pytest.mark.parametrize("name", [VECTORS, CLIENTS])
def test_a_damaged_file_is_one_line(name, run):
    (run / name).write_bytes((run / name).read_bytes()[:50])
    if name == VECTORS:
        report = replayed(run)
        assert report.outcome == "failed"
        assert report.differences[0].name == "stored vectors"
        return
    with pytest.raises(InputError, match=r"^clients: must "):
        replayed(run)


def test_without_evidence_nothing_is_shown_and_nothing_differs(run):
    for name in (EVIDENCE, VECTORS, CLIENTS):
        (run / name).unlink()
    assert privplan("replay", run, "--rounds", "all").exit_code == 5
    report = ReplayReport.load(run)
    assert report.outcome == "not shown"
    assert "evidence.jsonl" in report.reason
    assert comparison(report, "noise_sum_squares") == (3 * ROUNDS, 0)


def test_an_algorithm_that_is_not_supported_is_not_shown(tmp_path):
    execute(Request(short_plan(), "HyperFL", "digits", tmp_path / "run", own_unit=True))
    report = replayed(tmp_path / "run")
    assert report.outcome == "not shown"
    assert report.exit_code == 5
    assert "HyperFL cannot be executed again" in report.reason


def test_other_data_are_refused(run):
    record = RunRecord.load(run)
    changed = {**record.configuration, "data": "0" * 64}
    record.model_copy(update={"configuration": changed}).save(run)
    with pytest.raises(InputError, match=r"^dataset: must be the data of the run"):
        replayed(run)


SEED = 3


def run_of(folder, planning, algorithm="GDPFed+"):
    """The folder of a run."""
    plan = short_plan(planning=planning)
    execute(Request(plan, algorithm, "digits", folder, seed=SEED))
    return folder


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        pytest.param("GDPFed+", "GDPFed", marks=pytest.mark.slow),
        pytest.param("GDPFed+", "DP-FedAvg", marks=pytest.mark.slow),
        pytest.param("GDPFed+", "FedAvg", marks=pytest.mark.slow),
        pytest.param("DP-FedAvg", "FedAvg", marks=pytest.mark.slow),
        ("FedAvg", "DP-FedAvg"),
    ],
)
def test_a_run_that_names_another_algorithm_fails(algorithm, name, tmp_path):
    folder = run_of(tmp_path / "run", "quantiles", algorithm)
    RunRecord.load(folder).model_copy(update={"algorithm": name}).save(folder)
    report = replayed(folder)
    assert report.outcome == "failed"


def clients(folder):
    """Clients that took part in some round of a run, and all clients."""
    world = Replay(folder).world
    took_part = set()
    for round_ in range(1, world.plan.spec.rounds + 1):
        for line in planned_lines(world, round_):
            for contribution in line.parts:
                took_part.update(contribution.clients.tolist())
    return took_part, set(np.concatenate(world.parts.partition.members).tolist())


@pytest.mark.slow
@pytest.mark.parametrize("takes_part", [True, False])
def test_a_client_trained_on_other_images_shows_if_it_takes_part(
    takes_part, tmp_path, monkeypatch
):
    honest = run_of(tmp_path / "honest", "per_group")
    took_part, everyone = clients(honest)
    client = min(took_part if takes_part else everyone - took_part)
    batches = engine_round.batches

    def other_images(data, partition, clients, **options):
        x, y = batches(data, partition, clients, **options)
        rows = torch.from_numpy(np.asarray(clients) == client)
        x[rows] = x[rows].flip(-1)
        return x, y

    monkeypatch.setattr(engine_round, "batches", other_images)
    folder = run_of(tmp_path / "run", "per_group")
    report = replayed(folder)
    same = (folder / VECTORS).read_bytes() == (honest / VECTORS).read_bytes()
    assert same != takes_part
    assert report.outcome == ("failed" if takes_part else "passed"), report.reason
    if takes_part:
        assert "releases" in names_of(report.differences)


@pytest.mark.parametrize(
    ("noise", "norm", "rate"),
    [
        ("seeded", 1.0, 0.1),
        ("secure", 1.0, 0.1),
        # A step moves less than rounding of the parameters.
        ("secure", 1e-3, 1e-4),
    ],
)
def test_runs_that_protect_records_of_named_clients_are_executed_again(
    noise, norm, rate, tmp_path
):
    """Mini-batches follow from a client's name, and under a key from its number."""
    client = np.arange(6) % 3
    x = np.random.default_rng(0).normal(size=(6, 4)).astype("f4")
    y = (x[:, 0] > 0).astype(int)
    clinics = {"client": client, "group": ["all"] * len(x), "classes": [0, 1]}
    only_tested = simulate.Data(x[:3], y[:3], client=[0] * 3, group=["all"] * 3)
    plan = solve(
        Spec.parse(
            {
                "name": "records",
                "unit": "record",
                "groups": [
                    {
                        "name": "all",
                        "clients": 3,
                        "epsilon": 8.0,
                        "records": 2,
                        "batch_size": 1,
                    }
                ],
                "delta": 1e-2,
                "rounds": 2,
                "clipping_norm": norm,
                "local": {"batch_size": 1, "learning_rate": rate},
                "model": {"name": "my-net", "parameters": PARAMETERS},
            }
        )
    )
    run = simulate.train(
        plan,
        model=Net,
        data=simulate.Data(x, y, test=only_tested, **clinics),
        algorithm="DPFedAvg",
        noise=noise,
        seed=1,
        folder=tmp_path / "run",
    )
    assert not run.verdict.failed
    assert run.verdict.executed == 2


@pytest.mark.slow
def test_large_sums_of_records_beside_little_noise_are_executed_again(tmp_path):
    """A residual is in sums of gradients, whose rounding is that of the large sums."""
    clients = 3
    records = 1000
    client = np.arange(clients * records) % clients
    x = np.random.default_rng(0).normal(size=(len(client), 4)).astype("f4")
    group = ["all"] * len(x)
    only_tested = simulate.Data(
        x[:6], client=client[:6], y=client[:6] % 2, group=group[:6]
    )
    plan = solve(
        Spec.parse(
            {
                "name": "clinics",
                "unit": "record",
                "groups": [
                    {
                        "name": "all",
                        "clients": clients,
                        "epsilon": 4.0,
                        "records": records,
                    }
                ],
                "delta": 1e-3,
                "rounds": 1,
                "cohort": clients,
                "clipping_norm": 1.0,
                "local": {
                    "steps": 5,
                    "batch_size": records,
                    "learning_rate": 0.05,
                    "momentum": 0.9,
                },
                "planning": {"weights": "population"},
                "model": {"name": "my-net", "parameters": PARAMETERS},
            }
        )
    )
    run = simulate.train(
        plan,
        model=Net,
        data=simulate.Data(
            x, (x[:, 0] > -1.5).astype(int), client, group, test=only_tested
        ),
        algorithm="DPFedAvg",
        seed=1,
        folder=tmp_path / "run",
    )
    assert not run.verdict.failed
    assert run.verdict.executed == 1
