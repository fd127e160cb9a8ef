"""What clients keep never enters a release; hypernetworks: their start and chain rule."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

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
    mechanism, journal = algorithm.mechanism, MemoryLedger("")

    def release(round_, sums, weights, noise):
        seen.extend(part.total for part in sums)
        return mechanism.release(round_, sums, weights, noise)

    world = small.setting(
        replace(algorithm, mechanism=replace(mechanism, release=release))
    )
    run_round(world, initial_state(world), journal)
    return seen, journal


@pytest.mark.parametrize("case", personal.HEADS, ids=lambda case: case.name)
def test_a_head_never_enters_a_release(case):
    """Even a local rule that puts it into the update cannot send it."""
    plain, journal = sent(case.build())
    leaking, _ = sent(after(personal.with_head)(case.build()))
    for one, other in zip(plain, leaking, strict=True):
        assert len(one) == personal.BODY
        assert one.any()
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    [record] = journal.records
    assert record.dimension == (personal.BODY if case.build().mechanism.noisy else 0)


def test_an_offset_never_enters_a_release():
    """Where nothing is learnt clients send zero, whatever they keep."""
    algorithm = personal.OFFSETS.build()
    rule = algorithm.local.train

    def still(work):
        kept = work.theta.new_full((len(work.clients), personal.ALL), 1e3)
        return rule(replace(work, personal=kept, learning_rate=0.0))

    seen, journal = sent(replace(algorithm, local=LocalRule("still", still)))
    assert not any(one.any() for one in seen)
    assert [record.dimension for record in journal.records] == [personal.ALL]


@pytest.mark.parametrize("case", personal.CLIENT, ids=lambda case: case.name)
def test_embedding_and_head_never_enter_a_release(case):
    """Even a local rule that puts them into the update cannot send them."""
    plain, _ = sent(case.build())
    leaking, _ = sent(after(personal.with_own)(case.build()))
    made = small.setting(case.build()).model.head.start
    assert {len(one) for one in plain} == {
        Hypernetwork(made, personal.HIDDEN).parameters
    }
    assert any(one.any() for one in plain)
    for one, other in zip(plain, leaking, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


SENT = list(
    zip(personal.SERVER, (personal.BODY + personal.HEAD, personal.BODY), strict=True)
)


@pytest.mark.parametrize(("case", "length"), SENT)
def test_a_client_sends_what_it_did_to_what_it_was_sent(case, length):
    algorithm, journal, seen = case.build(), MemoryLedger(""), []
    alone = algorithm.mechanism.release_client

    def watched(round_, update, weight):
        seen.append(update)
        return alone(round_, update, weight)

    mechanism = replace(algorithm.mechanism, release_client=watched)
    world = small.setting(replace(algorithm, mechanism=mechanism))
    run_round(world, initial_state(world), journal)
    assert {len(one.vector) for one in seen} == {length}
    assert [record.family for record in journal.records] == ["none"] * len(seen)
    assert (
        len({one.client for one in seen})
        == len(seen)
        == sum(map(len, participants(world, 1)))
    )
