"""Canaries: directions, coins and turns; runs that carry them; what verdicts say."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from privplan.accounting.release import SamplingLaw
from privplan.auditing import AUDIT, VIEWS
from privplan.errors import InputError
from privplan.ledger import read_ledger
from privplan.verification.verify import judge, load_run
from simulate.algorithms.registry import algorithm
from simulate.audit import check_canaries, directions, make_canaries
from simulate.runs.request import Request
from simulate.runs.run import execute
from simulate.samplers import by_law
from tests.command import refused
from tests.simulate.conftest import interrupt

CANARIES_OF_A_GROUP = 200


def request_for(plan, folder, **changes):
    return replace(
        Request(
            plan, "planned", "digits", folder, seed=4, canaries=CANARIES_OF_A_GROUP
        ),
        **changes,
    )


@pytest.fixture(scope="module")
def audited(short_plan, tmp_path_factory):
    """The folder of an honest run with canaries."""
    folder = tmp_path_factory.mktemp("audited") / "run"
    execute(request_for(short_plan, folder))
    return folder


def test_directions_are_orthonormal_while_there_is_room():
    few = directions(1, 40, 300)
    many = directions(1, 40, 30)
    rows = few.rows(np.arange(40))
    assert_allclose(rows @ rows.T, np.eye(40), atol=1e-6)
    assert few.orthogonal
    assert not many.orthogonal
    assert_allclose(np.linalg.norm(many.rows(np.arange(40)), axis=1), 1.0, rtol=1e-6)


@pytest.mark.parametrize("dimension", [300, 30])
def test_products_are_those_with_the_released_part_of_a_direction(dimension):
    rng = np.random.default_rng(2)
    unit = directions(1, 40, dimension)
    released = np.arange(0, dimension, 2)
    observed = rng.normal(size=len(released))
    rows = unit.rows(np.arange(40))[:, released].astype(float)
    projections = rows @ observed / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)
    assert_allclose(unit.products(observed, released), projections, atol=1e-6)
    some_products = unit.products(observed, released, slice(10, 30))
    assert_array_equal(some_products[10:30], unit.products(observed, released)[10:30])
    full_vector = rng.normal(size=dimension)
    projections = unit.rows(np.arange(40)).astype(float) @ full_vector
    assert_allclose(unit.products(full_vector, None), projections, atol=1e-6)


def test_coins_are_fair_and_only_those_who_are_in_ever_send(short_plan):
    built = algorithm("planned", short_plan)
    canaries = make_canaries(3, 400, 3, 2410)
    assert abs(canaries.included.sum() - 600) < 5 * np.sqrt(300)
    counts = np.zeros(400)
    for round_ in range(1, 301):
        counts[canaries.sending(built, 1, short_plan.groups[1], round_)] += 1
    assert counts[~canaries.included[1]].max() == 0
    expected = 300 * short_plan.groups[1].sampling_ratio
    assert counts[canaries.included[1]].mean() == pytest.approx(expected, rel=0.03)


def test_fixed_size_canaries_keep_below_the_group_s_ratio(short_plan):
    built = algorithm("planned", short_plan)
    object.__setattr__(built, "sampler", by_law(SamplingLaw.FIXED_SIZE))
    group = short_plan.groups[0].model_copy(update={"sampling_ratio": 0.109})
    canaries = replace(
        make_canaries(3, 10, 3, 2410), included=np.ones((3, 10), dtype=bool)
    )
    assert all(
        len(canaries.sending(built, 0, group, round_)) == 1 for round_ in range(1, 9)
    )


@pytest.mark.parametrize("law", ["random_allocation:4", "min_separation:4"])
def test_canaries_come_once_in_four_rounds(law, short_plan):
    """Each that is in, once in each block of four or every four rounds; nobody else."""
    built = algorithm("planned", short_plan)
    canaries = make_canaries(3, 100, 3, 2410)
    object.__setattr__(built, "sampler", by_law(SamplingLaw(law)))
    group = short_plan.groups[0].model_copy(update={"sampling_ratio": 1.0})
    sent = [canaries.sending(built, 0, group, round_) for round_ in range(1, 9)]
    for block in (sent[:4], sent[4:]):
        included = np.flatnonzero(canaries.included[0])
        assert_array_equal(np.sort(np.concatenate(block)), included)
    alike = [
        np.array_equal(sent_in_first, sent_in_second)
        for sent_in_first, sent_in_second in zip(sent[:4], sent[4:], strict=True)
    ]
    assert alike == [law == "min_separation:4"] * 4


def test_the_ledger_counts_canaries_beside_the_participants(audited, short_plan):
    records = read_ledger(audited, short_plan.digest).records
    counts = {group.name: [] for group in short_plan.groups}
    for record in records:
        for share in record.shares:
            assert share.cohort == len(share.participants)
            counts[share.group].append(share.canaries or 0)
    for group in short_plan.groups:
        expected = 8 * group.sampling_ratio * CANARIES_OF_A_GROUP / 2
        assert abs(sum(counts[group.name]) - expected) < 5 * np.sqrt(
            expected + CANARIES_OF_A_GROUP
        )


def test_an_honest_run_with_canaries_is_kept_and_bounded_from_below(audited):
    verdict = judge(load_run(audited), 0)
    assert verdict.kept, (*verdict.failed, *verdict.not_shown)
    for group in verdict.groups:
        assert {bound.view for bound in group.audit} == set(VIEWS)
        for bound in group.audit:
            assert 0 <= bound.epsilon <= group.realised_upper
    # The loose group spends 12, and canaries do show it.
    [loose] = [group for group in verdict.groups if group.group == "loose"]
    assert max(bound.epsilon for bound in loose.audit) > 0.5


def test_an_interrupted_run_resumes_to_the_same_evidence(audited, short_plan, tmp_path):
    interrupt(request_for(short_plan, tmp_path / "run"), 3)
    assert not (tmp_path / "run" / AUDIT).exists()
    execute(request_for(short_plan, tmp_path / "run"))
    assert (tmp_path / "run" / AUDIT).read_bytes() == (audited / AUDIT).read_bytes()


def test_evidence_that_was_edited_is_named(audited, tmp_path):
    shutil.copytree(audited, tmp_path / "run")
    text = (tmp_path / "run" / AUDIT).read_text()
    data = json.loads(text)
    data["groups"][0]["rounds"][0] += 1.0
    (tmp_path / "run" / AUDIT).write_text(json.dumps(data))
    [audit] = [
        item
        for item in judge(load_run(tmp_path / "run"), 0).checks
        if item.name == "audit"
    ]
    assert audit.reason == "the canaries' evidence is not what the run wrote"
    for damaged in (
        text[:-100],
        "[" * 5000,
        text.replace('"final": [', '"final": [1.0,', 1),
    ):
        (tmp_path / "run" / AUDIT).write_text(damaged)
        assert "audit" in refused("verify", "--rounds=0", tmp_path / "run")


def test_algorithms_that_release_no_sums_take_no_canaries(short_plan):
    with pytest.raises(InputError, match="canaries: are only for"):
        check_canaries(algorithm("Local-only", short_plan), 10, 0)
    with pytest.raises(InputError, match="canaries: must be at most 20000"):
        check_canaries(algorithm("planned", short_plan), 10_000, 2410)
