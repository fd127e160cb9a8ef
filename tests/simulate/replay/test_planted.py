"""Faults that comparisons relative to numbers of the run missed are not kept.

Where a server steps by sums without their noise, either the releases of later rounds
differ, or the fault reaches no model: the verifier computes it from the releases.
"""

import base64
import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from privplan import releases
from privplan.errors import InputError
from privplan.evidence.rounds import (
    EVIDENCE,
    VECTORS,
    EvidenceHeader,
    read_evidence,
    vector_digest,
)
from privplan.plan import Plan
from privplan.planning.baselines import by_record
from privplan.planning.solver import solve
from privplan.record import PLAN, RunRecord
from privplan.report.verdicts import headline
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from privplan.verification.verify import judge, load_run
from privplan.yaml_text import load_yaml
from simulate.engine import loop
from simulate.models.registry import model
from simulate.own_parts import OwnParts
from simulate.replay.model import final_vector
from simulate.replay.scores import scores_of
from simulate.runs import request as requests
from simulate.runs.request import Request, prepare
from simulate.runs.run import execute, run_prepared
from simulate.tasks import MULTI_CLASS, metric_of
from tests.sabotage.fault import each_released, with_components
from tests.sabotage.kinds.rounds import CLEAR, stepping
from tests.simulate.replay.runs import ROUNDS, comparison, replayed, short_plan


def digits(**changes):
    """The digits preset with three rounds, and some changes."""
    data = {**load_yaml(preset("digits"), "spec"), "rounds": ROUNDS, **changes}
    return solve(Spec.parse(data))


def names_of(report):
    """Names of the comparisons that differ."""
    return {difference.name for difference in report.differences}


def trained(folder, plan, algorithm="planned", breaks=lambda experiment: experiment):
    """A run with a fault; returns the last model that its trainer had."""
    request = Request(plan, algorithm, "digits", folder, seed=3, own_unit=True)
    experiment = breaks(prepare(request))
    final_model = {}
    server = experiment.algorithm.server

    def step(theta, move, state):
        after, state = server.step(theta, move, state)
        final_model["theta"] = after
        return after, state

    noted = with_components(experiment, server=replace(server, step=step))
    run_prepared(request, noted)
    return final_model["theta"]


def only_last(change, rounds):
    """A change of the server's step in the last round alone."""
    return lambda releases, clear, round_: (
        change(releases, clear, round_) if round_ == rounds else releases
    )


MOMENTUM = {"server": {"optimizer": "momentum"}}


@pytest.mark.parametrize(
    "algorithm", ["planned", pytest.param("GDPFed+", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("changes", [{}, MOMENTUM], ids=["plain", "momentum"])
def test_clear_sums_in_the_steps_are_found(algorithm, changes, tmp_path):
    plan = digits(**changes)
    trained(tmp_path / "run", plan, algorithm, stepping(CLEAR))
    report = replayed(tmp_path / "run")
    assert report.outcome == "failed"
    assert "releases" in names_of(report)


@pytest.mark.parametrize("algorithm", ["planned", "GDPFed+"])
def test_a_last_step_by_clear_sums_reaches_no_model(algorithm, tmp_path):
    """Nothing is trained from it: the model of the releases is another one."""
    plan = digits(**MOMENTUM)
    wrong = trained(
        tmp_path / "run", plan, algorithm, stepping(only_last(CLEAR, ROUNDS))
    )
    honest = trained(tmp_path / "honest", plan, algorithm)
    vector = final_vector(tmp_path / "run").vector
    assert torch.equal(vector, honest)
    assert not torch.equal(vector, wrong)


def with_large_bias(folder, size):
    """A plan whose initial model has one dead unit with a large negative bias."""
    network = model("mlp-digits")
    values = network.initial(torch.Generator().manual_seed(1)).numpy().copy()
    values[64 * 32] = size  # the first bias of the hidden layer
    path = folder / "initial.npy"
    np.save(path, values.astype(np.float32))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    spec = load_yaml(preset("digits"), "spec")["model"]
    return digits(model={**spec, "initial": {"file": str(path), "sha256": digest}})


def test_one_large_public_coordinate_frees_no_other(tmp_path):
    plan = with_large_bias(tmp_path, -1e5)
    trained(tmp_path / "honest", plan)
    honest = replayed(tmp_path / "honest")
    assert honest.outcome == "passed", honest.reason
    trained(tmp_path / "run", plan, breaks=stepping(CLEAR))
    assert replayed(tmp_path / "run").outcome == "failed"


def _beside_the_model(experiment):
    """The step has the clear sum of the round, at 4e-5 of the model's norm."""
    clear = {}
    server = experiment.algorithm.server
    mechanism = experiment.algorithm.mechanism

    def release(round_, sums, weights, noise):
        clear["sum"] = (
            torch.stack([group_sum.total for group_sum in sums]).sum(0).float()
        )
        return mechanism.release(round_, sums, weights, noise)

    def step(theta, move, state):
        added = clear["sum"] / clear["sum"].norm() * 4e-5 * theta.norm()
        return server.step(theta, move + added, state)

    return with_components(
        experiment,
        mechanism=replace(mechanism, release=release),
        server=replace(server, step=step),
    )


def test_a_clear_sum_within_an_earlier_tolerance_is_found_and_reaches_no_model(
    tmp_path,
):
    wrong = trained(tmp_path / "run", digits(), breaks=_beside_the_model)
    honest = trained(tmp_path / "honest", digits())
    assert replayed(tmp_path / "run").outcome == "failed"
    vector = final_vector(tmp_path / "run").vector
    assert not torch.equal(vector, wrong)
    assert vector.shape == honest.shape


GRID = 3e-6  # in deviations of the noise


def _on_a_grid(release, group_sum):
    """The release lies on a grid, moved by the clear sum modulo the grid."""
    step = GRID * release.record.noise_std
    total = group_sum.total
    on_grid = (release.vector.double() / step).round() * step
    return replace(release, vector=(on_grid + total.remainder(step) - step / 2).float())


@pytest.mark.slow
def test_noise_on_a_fine_grid_that_carries_the_sum_is_found(tmp_path):
    trained(tmp_path / "run", digits(), breaks=each_released(_on_a_grid))
    report = replayed(tmp_path / "run")
    assert report.outcome == "failed"
    assert "releases" in names_of(report)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted") / "run"
    trained(folder, short_plan(), "GDPFed+")
    return folder


@pytest.fixture
def run(honest, tmp_path):
    return Path(shutil.copytree(honest, tmp_path / "run"))


def rewritten(run, change):
    """Evidence whose lines are changed, with a chain that fits."""
    chain = Plan.load(run / PLAN).digest
    text = ""
    for number, line in enumerate((run / EVIDENCE).read_text().splitlines()):
        value = json.loads(line)["evidence"]
        change(number, value)
        body = json.dumps(value, separators=(",", ":"))
        chain = hashlib.sha256(f"{chain}\n{body}".encode()).hexdigest()
        text += f'{{"evidence":{body},"chain":"{chain}"}}\n'
    (run / EVIDENCE).write_text(text)


def _state(number, value):
    if number:
        value["state"] = {f"sum {number}": 0.5 for number in range(500)}


def _record_as_digest(number, value):
    if number:
        value["releases"][0] = base64.b64encode(b"a record" * 6).decode()


def _no_digests(number, value):
    if number:
        value["releases"] = []


def _other_length(number, value):
    if number == 1:
        value["length"] += 1


def _other_ledger(number, value):
    if number == 2:
        value["ledger"] = "0" * 64


def _round_twice(number, value):
    if number == 3:
        value["round"] = 2


def _text_as_data(number, value):
    if not number:
        value["data"] = "a record"


def _more_in_the_header(number, value):
    if not number:
        value["parts"] = [1, 2, 3]


EDITS = [
    _state,
    _record_as_digest,
    _no_digests,
    _other_length,
    _other_ledger,
    _round_twice,
    _text_as_data,
    _more_in_the_header,
]


@pytest.mark.parametrize("change", EDITS)
def test_no_field_of_the_evidence_is_free(change, run):
    rewritten(run, change)
    assert judge(load_run(run)).outcome == "broken"
    assert replayed(run).outcome == "failed"
    with pytest.raises(InputError):
        final_vector(run)


def test_the_same_lines_again_are_sound(run):
    rewritten(run, lambda number, value: None)
    assert judge(load_run(run)).kept


def _appended(content):
    return content + b"\0" * 4


def _gap(content):
    start = 4 * 2410
    return content[:start] + b"\0" * 40 + content[start:]


def _cut(content):
    return content[:-4]


@pytest.mark.parametrize("change", [_appended, _gap, _cut])
def test_no_byte_of_the_vectors_is_outside_a_vector(change, run):
    path = run / VECTORS
    path.write_bytes(change(path.read_bytes()))
    assert judge(load_run(run)).outcome == "broken"
    assert replayed(run).outcome == "failed"
    with pytest.raises(InputError):
        final_vector(run)


def test_any_flipped_byte_of_the_vectors_breaks_the_run(run):
    content = bytearray((run / VECTORS).read_bytes())
    generator = np.random.default_rng(1)
    for place in generator.integers(len(content), size=8).tolist():
        changed = bytearray(content)
        changed[place] ^= 1 << int(generator.integers(8))
        (run / VECTORS).write_bytes(bytes(changed))
        assert judge(load_run(run)).outcome == "broken", place


def with_initial(run, place, bits, stored):
    """Other bits in the stored initial vector, with evidence that fits."""
    content = np.fromfile(run / VECTORS, "<u4")
    content[place] ^= bits
    content[: None if stored else 2410].tofile(run / VECTORS)
    fields = {"model": vector_digest(content[:2410].view("<f4")), "stored": stored}
    rewritten(run, lambda number, value: number or value.update(fields))


@pytest.mark.parametrize(
    ("place", "bits", "outcome"),
    [(7, 1, "not shown"), (64 * 32, 2**31, "not shown"), (7, 2**23, "failed")],
)
@pytest.mark.parametrize("stored", [True, False])
def test_no_bit_of_the_initial_vector_is_free(
    place, bits, outcome, stored, run, monkeypatch
):
    """A processor may have made its last bits, or whoever wrote the run."""
    monkeypatch.setattr(releases, "MOST_BYTES", 1000)
    with_initial(run, place, bits, stored)
    assert replayed(run).outcome == outcome
    assert "kept, executed" not in headline(judge(load_run(run)))


def test_a_small_run_that_stores_no_release_is_broken(run):
    """Nobody could compute the digests of its releases."""
    with_initial(run, 0, 0, stored=False)
    assert "leaves out releases" in headline(judge(load_run(run), 0))


def test_clients_that_share_records_break_a_run_that_protects_records(
    tmp_path, monkeypatch
):
    """Each client spends a whole budget on a record that several hold."""
    monkeypatch.setattr(requests, "require_disjoint", lambda *arguments: None)
    plan = short_plan()
    fewest = {group.name: 60 for group in plan.groups}
    plan = by_record(plan, fewest, weights="population")
    folder = tmp_path / "run"
    execute(Request(plan, "DPFedAvg", "digits", folder, seed=3, partition="iid:60"))
    assert judge(load_run(folder), 0).outcome == "unverified"
    assert names_of(replayed(folder, 1)) == {"shared records"}
    assert judge(load_run(folder)).outcome == "broken"


@pytest.mark.parametrize("part_of_noise", [0.1, 1.0])
def test_sums_beside_the_noise_of_small_steps_are_not_kept(
    part_of_noise, tmp_path, monkeypatch
):
    """A server with a large step makes an ordinary run of a tiny learning rate."""
    measure = loop.measure_client_releases

    def leaking(experiment, round_, releases):
        """Releases that are longer in their own direction, by a part of the noise."""
        for release in measure(experiment, round_, releases):
            longer = release.vector * (1 + part_of_noise)
            yield replace(release, vector=longer)

    monkeypatch.setattr(
        loop, "measure_client_releases", lambda *arguments: tuple(leaking(*arguments))
    )
    groups = [{"name": "all", "clients": 20, "epsilon": 2.0, "records": 4}]
    plan = digits(
        unit="record",
        groups=groups,
        cohort=5,
        rounds=2,
        planning={"weights": "population"},
        local={"steps": 2, "batch_size": 2, "learning_rate": 1e-8},
        server={"optimizer": "sgd", "learning_rate": 1e7},
    )
    folder = tmp_path / "run"
    execute(Request(plan, "DPFedAvg", "digits", folder, seed=1))
    report = replayed(folder)
    assert report.outcome == "failed"
    assert "releases" in names_of(report)


def test_scores_of_models_that_clients_keep_are_called_claimed(tmp_path):
    trained(tmp_path / "run", short_plan(planning="joint"), "DP-FedAvg-FT")
    folder = tmp_path / "run"
    record = RunRecord.load(folder)
    invented = record.metrics[0].model_copy(update={"loss": 0.123})
    record.model_copy(update={"metrics": (invented, *record.metrics[1:])}).save(folder)
    report = replayed(folder)
    report.save(folder)
    assert report.outcome == "passed"
    answer = headline(judge(replace(load_run(folder), executed=report)))
    assert "kept, executed again (all 3 rounds)" in answer
    assert "they are only claimed" in answer


@pytest.mark.parametrize("metric", ["accuracy", "auroc"])
def test_a_model_whose_outputs_are_ties_has_no_score(honest, metric):
    plan = Plan.load(honest / PLAN)
    record = RunRecord.load(honest)
    run_parts = OwnParts().parts_of(record, plan, None, honest)
    if metric != "accuracy":
        run_parts = replace(run_parts, metric=metric_of(MULTI_CLASS, metric))
    theta = final_vector(honest).vector.clone()
    rows = np.arange(len(run_parts.data.test_y))
    assert scores_of(run_parts, plan, theta, rows).shown
    theta[-10:] = 1e6  # the biases of the outputs
    assert not scores_of(run_parts, plan, theta, rows).shown


def test_evidence_of_an_earlier_version_is_read_and_nothing_of_it_is_executed(run):
    """Its header named intervals, its rounds models and states."""

    def earlier(number, value):
        if not number:
            value.update(version=1, models_every=1, releases_every=1)
            del value["stored"], value["settings"]
            return
        value.update(
            model="0" * 64,
            state={"clipping_norm": 0.0},
            releases_at=0,
            model_at=0,
            end=0,
        )
        order = ("round", "releases", "length", "model", "state", "ledger")
        ordered = {
            name: value.pop(name) for name in (*order, "releases_at", "model_at", "end")
        }
        value.clear()
        value.update(ordered)

    rewritten(run, earlier)
    evidence = read_evidence(run, Plan.load(run / PLAN).digest)
    assert evidence.fault is None
    assert not isinstance(evidence.header, EvidenceHeader)
    assert judge(load_run(run)).level == "recorded"
    report = replayed(run)
    assert report.outcome == "not shown"
    assert report.rounds == ()
    assert "evidence of a version of this project before" in report.reason
    with pytest.raises(InputError, match="must be of this version"):
        final_vector(run)


def test_every_evaluated_round_is_compared(honest):
    report = replayed(honest)
    assert comparison(report, "metrics") == (
        2 * len(RunRecord.load(Path(honest)).metrics),
        0,
    )
