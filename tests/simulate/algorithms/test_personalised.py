"""What clients keep never enters a release, and what hypernetworks' clients send."""

from dataclasses import replace

import pytest
from torch import Tensor
from torch.testing import assert_close

from simulate.components import LocalRule
from simulate.engine.loop import initial_state, run_round
from simulate.engine.round import participants
from simulate.models.hypernetwork import Hypernetwork
from simulate.runs.ledger_writer import MemoryLedger
from tests.simulate import small
from tests.simulate.algorithms.references import personal
from tests.simulate.case import after


def sent(algorithm):
    """The sums of the first round before any noise, and the ledger's lines."""
    seen: list[Tensor] = []
    mechanism = algorithm.mechanism
    journal = MemoryLedger("")

    def release(round_, sums, weights, noise):
        seen.extend(group_sum.total for group_sum in sums)
        return mechanism.release(round_, sums, weights, noise)

    watched = replace(mechanism, release=release)
    world = small.setting(replace(algorithm, mechanism=watched))
    run_round(world, initial_state(world), journal)
    return seen, journal


@pytest.mark.parametrize("case", personal.HEADS, ids=lambda case: case.name)
def test_a_head_never_enters_a_release(case):
    """Even a local rule that puts it into the update cannot send it."""
    plain, journal = sent(case.build())
    leaking, _ = sent(after(personal.with_head)(case.build()))
    for total, total_of_leaking in zip(plain, leaking, strict=True):
        assert len(total) == personal.BODY
        assert total.any()
        assert_close(total, total_of_leaking, rtol=0, atol=0)
    [record] = journal.records
    assert record.dimension == (personal.BODY if case.build().mechanism.noisy else 0)


def test_an_offset_never_enters_a_release():
    """Where nothing is learnt clients send zero, whatever they keep."""
    algorithm = personal.OFFSETS.build()
    rule = algorithm.local.train

    def still(work):
        offsets = work.theta.new_full((len(work.clients), personal.ALL), 1e3)
        return rule(replace(work, personal=offsets, learning_rate=0.0))

    seen, journal = sent(replace(algorithm, local=LocalRule("still", still)))
    assert not any(total.any() for total in seen)
    assert [record.dimension for record in journal.records] == [personal.ALL]


@pytest.mark.parametrize("case", personal.CLIENT, ids=lambda case: case.name)
def test_embedding_and_head_never_enter_a_release(case):
    """Even a local rule that puts them into the update cannot send them."""
    plain, _ = sent(case.build())
    leaking, _ = sent(after(personal.with_own)(case.build()))
    body = small.setting(case.build()).model.head.start
    size = Hypernetwork(body, personal.HIDDEN).parameters
    assert {len(total) for total in plain} == {size}
    assert any(total.any() for total in plain)
    for total, total_of_leaking in zip(plain, leaking, strict=True):
        assert_close(total, total_of_leaking, rtol=0, atol=0)


SENT = list(
    zip(personal.SERVER, (personal.BODY + personal.HEAD, personal.BODY), strict=True)
)


@pytest.mark.parametrize(("case", "length"), SENT)
def test_a_client_sends_what_it_did_to_what_it_was_sent(case, length):
    algorithm = case.build()
    journal = MemoryLedger("")
    seen = []
    alone = algorithm.mechanism.release_client

    def watched(round_, update, weight):
        seen.append(update)
        return alone(round_, update, weight)

    mechanism = replace(algorithm.mechanism, release_client=watched)
    world = small.setting(replace(algorithm, mechanism=mechanism))
    run_round(world, initial_state(world), journal)
    assert {len(update.vector) for update in seen} == {length}
    assert [record.family for record in journal.records] == ["none"] * len(seen)
    assert len({update.client for update in seen}) == len(seen)
    assert len(seen) == sum(map(len, participants(world, 1)))
