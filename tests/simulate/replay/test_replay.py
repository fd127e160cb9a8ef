"""Replay agrees with honest runs, and names what differs in others."""

import pytest

from privplan.evidence import CLIENTS, EVIDENCE, VECTORS, read_evidence
from privplan.plan import Plan
from privplan.record import LEDGER, PLAN
from simulate.runs import run as evidence_writer
from simulate.runs.request import Request
from simulate.runs.run import InterruptedRunError, execute
from simulate.server import SERVER_OPTIMISERS
from tests.simulate.replay.runs import ROUNDS, comparison, replayed, short_plan


@pytest.mark.parametrize(
    ("algorithm", "sampling"),
    [
        ("FedAvg", "poisson"), ("DP-FedAvg", "fixed_size"), ("GDPFed", "fixed_size"),
        ("GDPFed-op", "poisson"), ("planned", "poisson"), ("DPFedAvg", "poisson"),
    ],
)  # fmt: skip
def test_an_honest_run_passes(algorithm, sampling, tmp_path):
    execute(
        Request(short_plan(sampling), algorithm, "digits", tmp_path / "run", seed=3, own_unit=True)
    )
    rounds = 1 if algorithm == "DPFedAvg" else ROUNDS
    report = replayed(tmp_path / "run", rounds)
    assert report.outcome == "passed", report.reason
    assert comparison(report, "model") == (rounds, 0)
    assert comparison(report, "accuracy") == (1, 0)
    assert max(one.largest for one in report.comparisons if one.name != "accuracy") < 1e-5


@pytest.mark.parametrize("planning", ["joint", "quantile"])
def test_a_joint_plan_passes(planning, tmp_path):
    plan = short_plan(planning=planning)
    assert plan.release == "joint"
    assert (plan.clipping is not None) == (planning == "quantile")
    execute(Request(plan, "planned", "digits", tmp_path / "run", seed=3))
    report = replayed(tmp_path / "run")
    assert report.outcome == "passed", report.reason
    if planning == "quantile":
        assert comparison(report, "clipping_norm") == (ROUNDS, 0)


@pytest.mark.parametrize("algorithm", ["DP-FedAvg", "GDPFed+", "FedAvg"])
def test_a_paid_quantile_of_each_method_is_replayed(algorithm, tmp_path):
    execute(Request(short_plan(planning="quantiles"), algorithm, "digits", tmp_path / "run"))
    report = replayed(tmp_path / "run")
    assert report.outcome == "passed", report.reason
    assert comparison(report, "model") == (ROUNDS, 0)
    if algorithm != "FedAvg":
        assert comparison(report, "clipping_norm") == (ROUNDS, 0)


@pytest.mark.parametrize(
    ("server", "averaging", "algorithm", "planning"),
    [
        ("sgd", "tail", "FedAvg", "joint"), ("momentum", "ema", "planned", "quantile"),
        ("momentum", "", "GDPFed+", "per_group"), ("adagrad", "", "DP-FedAvg", "joint"),
        ("adam", "ema", "planned", "joint"), ("yogi", "", "planned", "joint"),
    ],
)  # fmt: skip
def test_server_optimisers_and_averages_are_replayed(
    server, averaging, algorithm, planning, tmp_path
):
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


def test_a_server_that_took_another_step_is_found(tmp_path, monkeypatch):
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


def test_rounds_are_selected_afresh_and_again_by_seed(run):
    first, again = replayed(run, 1), replayed(run, 1)
    assert first.selection_seed != again.selection_seed
    assert replayed(run, 1, first.selection_seed).rounds == first.rounds
    assert len(first.rounds) == 1
    assert first.of == ROUNDS


def test_rounds_between_stored_models_are_reached_from_the_nearest(tmp_path, monkeypatch):
    monkeypatch.setattr(evidence_writer, "MOST_BYTES", 2 * 2410 * 4)
    folder = tmp_path / "run"
    execute(Request(short_plan(), "DP-FedAvg", "digits", folder, seed=3))
    evidence = read_evidence(folder, Plan.load(folder / PLAN).digest)
    assert evidence.header.models_every == 2
    assert [evidence.rounds[one].model_at is None for one in (1, 2, 3)] == [True, False, False]
    report = replayed(folder)
    assert report.outcome == "passed", report.reason
    assert comparison(report, "model") == (2, 0)


def test_an_interrupted_run_has_the_evidence_of_the_whole_run(run, tmp_path):
    def stop(done, total):
        if done == 2:
            raise KeyboardInterrupt

    request = Request(short_plan(), "GDPFed+", "digits", tmp_path / "other", seed=3)
    with pytest.raises(InterruptedRunError):
        execute(request, stop)
    execute(request)
    for name in (EVIDENCE, VECTORS, CLIENTS):
        assert (tmp_path / "other" / name).read_bytes() == (run / name).read_bytes(), name


@pytest.mark.parametrize("written", [0, 100, None])
def test_an_interrupt_while_evidence_is_written_loses_none_of_it(
    written, run, tmp_path, monkeypatch
):
    """After none, some bytes, or all of a round's evidence; the round is then repeated."""
    folder, append = tmp_path / "other", evidence_writer.EvidenceWriter.append

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
