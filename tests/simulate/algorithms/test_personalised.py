"""What clients keep never enters a release; hypernetworks: their start and chain rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from simulate.components import LocalResult, LocalRule
from simulate.engine.loop import initial_state, run_round
from simulate.engine.round import participants
from simulate.local.sgd import additive_sgd
from simulate.models.network import Hypernetwork
from simulate.runs.ledger_writer import MemoryLedger
from tests.simulate import small
from tests.simulate.algorithms.references.personal import (
    ALL,
    BODY,
    CASES,
    CLIENT,
    HEAD,
    HEADS,
    HIDDEN,
    OFFSETS,
    SERVER,
    after,
    with_head,
    with_own,
)


def sent(algorithm):
    """The sums of the first round before any noise, and the ledger's lines."""
    seen: list[Tensor] = []
    mechanism, journal = algorithm.mechanism, MemoryLedger("")

    def release(round_, sums, weights, noise):
        seen.extend(part.total for part in sums)
        return mechanism.release(round_, sums, weights, noise)

    spied = replace(algorithm, mechanism=replace(mechanism, release=release))
    world = small.setting(spied)
    run_round(world, initial_state(world), journal)
    return seen, journal


@pytest.mark.parametrize("case", HEADS, ids=lambda case: case.name)
def test_a_head_never_enters_a_release(case):
    """Even a local rule that puts it into the update cannot send it."""
    plain, journal = sent(case.build())
    leaking, _ = sent(after(with_head)(case.build()))
    for one, other in zip(plain, leaking, strict=True):
        assert len(one) == BODY
        assert one.any()
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    [record] = journal.records
    assert record.dimension == (BODY if case.build().mechanism.noisy else 0)


def test_an_offset_never_enters_a_release():
    """Where nothing is learnt clients send zero, whatever they keep."""
    algorithm = OFFSETS.build()
    rule = algorithm.local.train

    def still(work):
        kept = work.theta.new_full((len(work.clients), ALL), 1e3)
        return rule(replace(work, personal=kept, learning_rate=0.0))

    seen, journal = sent(replace(algorithm, local=LocalRule("still", still)))
    assert not any(one.any() for one in seen)
    assert [record.dimension for record in journal.records] == [ALL]


@pytest.mark.parametrize("alpha", [0.0, 0.25, 4.0])
def test_alpha_is_the_ratio_of_shared_to_personal_steps(alpha):
    seen: list[LocalResult] = []

    def watch(work):
        seen.append(additive_sgd(alpha).train(work))
        return seen[-1]

    sent(replace(OFFSETS.build(), local=LocalRule("watched", watch)))
    for trained in seen:
        assert trained.personal.any()
        torch.testing.assert_close(trained.updates, alpha * trained.personal, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("case", CLIENT, ids=lambda case: case.name)
def test_embedding_and_head_never_enter_a_release(case):
    """Even a local rule that puts them into the update cannot send them."""
    plain, _ = sent(case.build())
    leaking, _ = sent(after(with_own)(case.build()))
    made = small.setting(case.build()).model.head.start
    assert {len(one) for one in plain} == {Hypernetwork(made, HIDDEN).parameters}
    for one, other in zip(plain, leaking, strict=True):
        assert one.any()
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize(("case", "length"), list(zip(SERVER, (BODY + HEAD, BODY), strict=True)))
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
    assert len({one.client for one in seen}) == len(seen) == sum(map(len, participants(world, 1)))


def test_every_client_starts_from_one_embedding_and_one_head():
    for case in CASES:
        world = small.setting(case.build())
        own = world.personal_start
        clients = np.arange(4)
        rows = None if own is None else own.expand(4, -1)
        thetas = world.algorithm.split.use(world.model, world.start, rows, clients)
        torch.testing.assert_close(thetas, thetas[:1].expand(4, -1), rtol=0, atol=0)


def test_the_first_model_has_the_spread_of_a_usual_one():
    world = small.setting(CLIENT[0].build())
    found = world.algorithm.split.use(world.model, world.start, None, np.arange(0))[0]
    usual = world.model.initial(torch.Generator().manual_seed(0))
    for own, other in zip(_split(world.model, found), _split(world.model, usual), strict=True):
        if len(own) > 100:
            assert 0.9 < float(own.std() / other.std()) < 1.5


def _split(model, theta):
    return theta.split([int(np.prod(shape)) for _, shape in model.shapes])


@pytest.mark.parametrize("batch", [1, 3])
def test_the_chain_rule_against_autograd(batch):
    sizes = Hypernetwork(made=5, hidden=4, embedding=3)
    source = torch.Generator().manual_seed(1)
    start = torch.rand(5, generator=source)
    weights = torch.stack([sizes.initial(start, torch.ones(5), source) for _ in range(2)])
    embeddings = torch.rand(2, batch, 3, generator=source)
    slopes = torch.rand(2, batch, 5, generator=source)
    free, vectors = weights.clone().requires_grad_(), embeddings.clone().requires_grad_()
    sizes.generated(free, vectors).backward(slopes)
    into = torch.zeros_like(weights)
    found = sizes.pull_back(weights, embeddings, slopes, into, 0.5)
    torch.testing.assert_close(found, vectors.grad)
    torch.testing.assert_close(into, 0.5 * free.grad)
    torch.testing.assert_close(sizes.pull_back(weights, embeddings, slopes, weights, -1.0), found)
    torch.testing.assert_close(weights, free.detach() - free.grad)
