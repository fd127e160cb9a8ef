"""Methods with personal heads, offsets or hypernetworks: loops over clients with torch.nn."""

from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch.func import functional_call

from simulate.client_aggregators import through_hypernetwork
from simulate.engine.loop import one_core
from simulate.engine.round import participants
from simulate.local.sgd import additive_sgd, alternating, hypernetwork_sgd
from simulate.models.hypernetwork import EMBEDDING, Hypernetwork
from simulate.models.registry import model
from simulate.splits import head, whole
from tests.simulate import small
from tests.simulate.case import Case, after, backwards, having, slower, without_momentum

RHO, HEAD_RATE, ALPHA = 0.3, 0.5, 0.4
BODY, HEAD, ALL = 64 * 32 + 32, 330, 2410
"""Parameters of the body and of the head of mlp-digits, and of all of it."""


def check_heads(rho):
    """Compare with a head by SGD, then a body by SAM, of each client for itself."""

    def check(algorithm):
        world = small.setting(algorithm)

        def client(theta, own, real, rate):
            start = theta if own is None else torch.cat([theta[:BODY], own])
            network = small.network_at(world, start)
            last = list(network.children())[-1]
            sgd = torch.optim.SGD(last.parameters(), HEAD_RATE * rate, small.MOMENTUM)
            for images, labels in real:
                network.zero_grad()
                small.loss(network, images, labels).backward()
                sgd.step()
            for weight in last.parameters():
                weight.requires_grad_(False)
            small.sam(network, real, rate, rho)
            moved = small.flat(network) - start
            moved[BODY:] = 0
            return moved, small.flat(network)[BODY:].clone()

        same(algorithm, small.averaged_with_own(world, client, world.start))

    return check


def check_offsets(algorithm):
    """Compare with shared and personal parameters as two leaves, whose sum is the model."""
    world = small.setting(algorithm)
    network = world.model.module()

    def client(theta, own, real, rate):
        shared = theta.clone().requires_grad_()
        kept = (
            torch.zeros_like(theta) if own is None else own.clone()
        ).requires_grad_()
        rates = [
            {"params": [shared], "lr": ALPHA * rate},
            {"params": [kept], "lr": rate},
        ]
        sgd = torch.optim.SGD(rates, momentum=small.MOMENTUM)
        for images, labels in real:
            sizes = [int(np.prod(shape)) for _, shape in world.model.shapes]
            parts = zip(world.model.shapes, (shared + kept).split(sizes), strict=True)
            values = {name: part.view(shape) for (name, shape), part in parts}
            logits = torch.func.functional_call(network, values, (images,))
            sgd.zero_grad()
            nn.functional.cross_entropy(logits, labels).backward()
            sgd.step()
        return shared.detach() - theta, kept.detach()

    same(algorithm, small.averaged_with_own(world, client, world.start))


def same(algorithm, expected):
    """Compare the engine's global vector and what its clients keep."""
    found, (theta, own) = small.played(algorithm), expected
    torch.testing.assert_close(found.theta, theta, rtol=1e-4, atol=1e-6)
    assert found.personal.keys() == own.keys()
    for number, kept in own.items():
        torch.testing.assert_close(found.personal[number], kept, rtol=1e-4, atol=1e-6)


def with_head(work, trained):
    """Put what the client keeps of its head into the update."""
    moved = trained.personal - work.theta[work.model.head]
    return replace(trained, updates=torch.cat([trained.updates[:, :BODY], moved], 1))


def head_released(algorithm):
    """Every parameter may leave, and the head is in the update."""
    split = replace(algorithm.split, shared=lambda model: None)
    return replace(after(with_head)(algorithm), split=split)


def _forgets(work, trained):
    return replace(trained, personal=work.personal)


def _with_offset(work, trained):
    return replace(trained, updates=trained.updates + trained.personal - work.personal)


def by(rho, head_rate):
    """The algorithm with other numbers in its local rule."""
    return having(local=alternating(head(), rho=rho, head_rate=head_rate))


HEADS = (
    Case("P-FedSAM", small.plan(), check_heads(RHO), {
        "no ascent": by(0.0, HEAD_RATE),
        "a head that is fixed": by(RHO, 0.0),
        "a head that is released": head_released,
        "a head that is forgotten": after(_forgets),
    }, {"rho": RHO, "head_rate": HEAD_RATE}),
    Case("DP2-FedSAM", small.plan(), check_heads(RHO), {
        "no ascent": by(0.0, HEAD_RATE),
        "descent in place of ascent": by(-RHO, HEAD_RATE),
        "a head that is released": head_released,
    }, {"rho": RHO, "head_rate": HEAD_RATE}),
    Case("CENTAUR", small.plan(), check_heads(0.0), {
        "ascent": by(RHO, HEAD_RATE),
        "a head that is released": head_released,
        "a head that is forgotten": after(_forgets),
    }, {"head_rate": HEAD_RATE}),
)  # fmt: skip
OFFSETS = Case("PPSGD", small.plan(), check_offsets, {
    "offsets averaged": after(_with_offset),
    "offsets forgotten": after(_forgets),
    "offsets not used": having(split=whole()),
    "equal steps": having(local=additive_sgd(1.0)),
}, {"alpha": ALPHA})  # fmt: skip
OWN_CASES = (*HEADS, OFFSETS)


HIDDEN, RATE = 16, 0.4
POPULATION = 3 * small.CLIENTS


class Plain(nn.Module):
    """A hypernetwork with a head of its own for each tensor, as the papers draw it.

    Args:
        shapes: of the tensors that it makes.
        values: its parameters [P], as the project keeps them.
    """

    def __init__(self, shapes, values):
        super().__init__()
        sizes = [int(np.prod(shape)) for shape in shapes]
        self.layer = nn.Linear(EMBEDDING, HIDDEN)
        self.heads = nn.ModuleList(nn.Linear(HIDDEN, size) for size in sizes)
        total = sum(sizes)
        lengths = [HIDDEN * EMBEDDING, HIDDEN, total * HIDDEN, total]
        layer, offsets, matrix, biases = values.split(lengths)
        parts = zip(
            matrix.view(total, HIDDEN).split(sizes), biases.split(sizes), strict=True
        )
        with torch.no_grad():
            self.layer.weight.copy_(layer.view(HIDDEN, EMBEDDING))
            self.layer.bias.copy_(offsets)
            for one, (weight, bias) in zip(self.heads, parts, strict=True):
                one.weight.copy_(weight)
                one.bias.copy_(bias)

    def forward(self, embedding):
        """An embedding [E] to the tensors, flat."""
        hidden = self.layer(embedding).relu()
        return [one(hidden) for one in self.heads]

    def flat(self):
        """Its parameters [P], in the project's order."""
        matrix = torch.cat([one.weight.flatten() for one in self.heads])
        biases = torch.cat([one.bias for one in self.heads])
        return torch.cat(
            [self.layer.weight.flatten(), self.layer.bias, matrix, biases]
        ).detach()


def tensors(world):
    """Name and shape of the tensors of the body; the head's are the last two."""
    return list(world.model.shapes)[:-2]


def check_client(algorithm):
    """HyperFL as a loop: head by SGD for a pass, then hypernetwork and embedding by autograd."""
    world = small.setting(algorithm)
    network, inner = world.model.module(), tensors(world)
    names = [name for name, _ in world.model.shapes]
    size = Hypernetwork(world.model.head.start, HIDDEN).parameters

    def client(theta, own, real, rate):
        kept = theta[size:] if own is None else own
        plain = Plain([shape for _, shape in inner], theta[:size])
        embedding = kept[:EMBEDDING].clone().requires_grad_()
        weight = kept[EMBEDDING : EMBEDDING + 320].view(10, 32).clone().requires_grad_()
        bias = kept[EMBEDDING + 320 :].clone().requires_grad_()

        def loss(images, labels):
            shaped = [
                part.view(shape)
                for part, (_, shape) in zip(plain(embedding), inner, strict=True)
            ]
            values = dict(zip(names, [*shaped, weight, bias], strict=True))
            return nn.functional.cross_entropy(
                functional_call(network, values, (images,)), labels
            )

        sgd = torch.optim.SGD([weight, bias], HEAD_RATE * rate, small.MOMENTUM)
        for images, labels in real[: a_pass(world, real)]:
            sgd.zero_grad()
            loss(images, labels).backward()
            sgd.step()
        sgd = torch.optim.SGD([*plain.parameters(), embedding], rate, small.MOMENTUM)
        for images, labels in real:
            sgd.zero_grad()
            loss(images, labels).backward()
            sgd.step()
        moved = torch.zeros_like(theta)
        moved[:size] = plain.flat() - theta[:size]
        return moved, torch.cat([embedding, weight.flatten(), bias]).detach()

    same(algorithm, small.averaged_with_own(world, client, world.start))


def a_pass(world, real):
    """Batches of one pass over a client's records, the last of which is short here."""
    return 1 + [len(labels) < world.local.batch_size for _, labels in real].index(True)


def check_server(*, personal):
    """pFedHN as a loop: SGD of each client, then autograd through what the server made."""

    def check(algorithm):
        world = small.setting(algorithm)
        shapes = [
            shape for _, shape in (tensors(world) if personal else world.model.shapes)
        ]
        theta, own = world.start.clone(), {}
        size = Hypernetwork(BODY if personal else BODY + HEAD, HIDDEN).parameters
        end = size + POPULATION * EMBEDDING
        for round_ in range(1, small.ROUNDS + 1):
            step = torch.zeros_like(theta)
            for number in map(int, np.concatenate(participants(world, round_))):
                plain = Plain(shapes, theta[:size])
                place = slice(
                    size + number * EMBEDDING, size + (number + 1) * EMBEDDING
                )
                embedding = theta[place].clone().requires_grad_()
                sent = torch.cat(plain(embedding))
                start = torch.cat([sent, own.get(number, theta[end:])]).detach()
                network = small.network_at(world, start)
                sgd = small.sgd(network, world.learning_rate(round_))
                with one_core():
                    for images, labels in small.mini_batches(world, round_, number):
                        sgd.zero_grad()
                        small.loss(network, images, labels).backward()
                        sgd.step()
                ended = small.flat(network)
                if personal:
                    own[number] = ended[BODY:].clone()
                sent.backward((ended - start)[: len(sent)])
                step[place] += RATE * embedding.grad
                for weight in plain.parameters():
                    weight.data = weight.grad
                step[:size] += RATE * plain.flat() / small.COHORT
            theta = theta + step
        same(algorithm, (theta, own))

    return check


def _forgets_embedding(work, trained):
    own = torch.cat([work.personal[:, :EMBEDDING], trained.personal[:, EMBEDDING:]], 1)
    return replace(trained, personal=own)


def with_own(work, trained):
    """Put embedding and head beside the update of the hypernetwork."""
    size = Hypernetwork(work.model.head.start, HIDDEN).parameters
    moved = trained.personal - work.theta[size:]
    return replace(trained, updates=torch.cat([trained.updates[:, :size], moved], 1))


def own_released(algorithm):
    """Everything may leave, and embedding and head are in the update."""
    split = replace(algorithm.split, shared=lambda model: None)
    return replace(after(with_own)(algorithm), split=split)


def _embeddings_fixed(algorithm):
    inner = algorithm.aggregator

    def combine(releases, theta, state):  # type: ignore[no-untyped-def]
        step, state = inner.combine(releases, theta, state)
        size = (
            len(theta)
            - POPULATION * EMBEDDING
            - (HEAD if "PC" in algorithm.name else 0)
        )
        step[size:] = 0
        return step, state

    return replace(algorithm, aggregator=replace(inner, combine=combine))


def _hypernetwork_fixed(algorithm):
    inner = algorithm.aggregator

    def combine(releases, theta, state):  # type: ignore[no-untyped-def]
        step, state = inner.combine(releases, theta, state)
        step[: len(theta) - POPULATION * EMBEDDING] = 0
        return step, state

    return replace(algorithm, aggregator=replace(inner, combine=combine))


def frozen(plan):
    """The plan with its model frozen and given adapters."""
    name = f"adapters:{plan.spec.model.name}"
    changes = {"name": name, "parameters": model(name).parameters}
    planned = plan.spec.model.model_copy(update=changes)
    return plan.model_copy(
        update={"spec": plan.spec.model_copy(update={"model": planned})}
    )


TRAINING = {
    "half of the learning rate": slower,
    "no momentum": without_momentum,
    "a step backwards": backwards,
}
NUMBERS = {"hidden": float(HIDDEN)}
SERVER = (
    Case("pFedHN", small.plan(), check_server(personal=False), {
        **TRAINING,
        "embeddings that are fixed": _embeddings_fixed,
        "a hypernetwork that is fixed": _hypernetwork_fixed,
        "another rate": having(aggregator=through_hypernetwork(POPULATION, HIDDEN, RATE / 2)),
    }, {**NUMBERS, "server_rate": RATE}),
    Case("pFedHN-PC", small.plan(), check_server(personal=True), {
        **TRAINING,
        "embeddings that are fixed": _embeddings_fixed,
        "a classifier that is forgotten": after(_forgets),
    }, {**NUMBERS, "server_rate": RATE}),
)  # fmt: skip
CLIENT = tuple(
    Case(name, plan, check_client, {
        **TRAINING,
        "an embedding that is fixed": after(_forgets_embedding),
        "embedding and head released": own_released,
        "a head that is fixed": lambda one: replace(
            one, local=hypernetwork_sgd(one.split, hidden=HIDDEN, head_rate=0.0)
        ),
    }, {**NUMBERS, "head_rate": HEAD_RATE})
    for name, plan in (("HyperFL", small.plan()), ("HyperFL-LPM", frozen(small.plan())))
)  # fmt: skip
CASES = (*OWN_CASES, *SERVER, *CLIENT)
