"""Methods with personal heads, offsets or hypernetworks, as loops over clients."""

from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch.func import functional_call
from torch.testing import assert_close

from simulate.client_aggregators import through_hypernetwork
from simulate.engine.round import participants
from simulate.local.sgd import additive_sgd, alternating, hypernetwork_sgd
from simulate.models.hypernetwork import EMBEDDING, Hypernetwork
from simulate.models.registry import model
from simulate.parallel import one_core
from simulate.splits import head, whole
from tests.simulate import small
from tests.simulate.case import Case, after, backwards, having, slower, without_momentum

RHO = 0.3
HEAD_RATE = 0.5
ALPHA = 0.4
# Parameters of the body and of the head of mlp-digits, and of all of it.
BODY = 64 * 32 + 32
HEAD = 32 * 10 + 10
ALL = BODY + HEAD


def check_heads(rho):
    """Compare with a head by SGD, then a body by SAM, of each client for itself."""

    def check(algorithm):
        world = small.setting(algorithm)

        def client(theta, personal, real, rate):
            start = theta
            if personal is not None:
                start = torch.cat([theta[:BODY], personal])
            network = small.network_at(world, start)
            head = list(network.children())[-1]
            sgd = torch.optim.SGD(head.parameters(), HEAD_RATE * rate, small.MOMENTUM)
            for images, labels in real:
                network.zero_grad()
                small.loss(network, images, labels).backward()
                sgd.step()
            for weight in head.parameters():
                weight.requires_grad_(False)
            small.sam(network, real, rate, rho)
            movement = small.flat(network) - start
            movement[BODY:] = 0
            return movement, small.flat(network)[BODY:].clone()

        same(algorithm, small.averaged_with_own(world, client, world.start))

    return check


def loss_at(network, theta, images, labels):
    """The mean cross-entropy at parameters [d], through the plain module."""
    flat_tensors = theta.split([int(np.prod(shape)) for _, shape in network.shapes])
    values = {}
    for (name, shape), tensor in zip(network.shapes, flat_tensors, strict=True):
        values[name] = tensor.view(shape)
    logits = functional_call(network.module(), values, (images,))
    return nn.functional.cross_entropy(logits, labels)


def check_offsets(algorithm):
    """Compare with shared and personal parameters as leaves, whose sum is the model."""
    world = small.setting(algorithm)

    def client(theta, personal, real, rate):
        shared = theta.clone().requires_grad_()
        offset = torch.zeros_like(theta) if personal is None else personal.clone()
        offset.requires_grad_()
        of_shared = {"params": [shared], "lr": ALPHA * rate}
        of_offset = {"params": [offset], "lr": rate}
        sgd = torch.optim.SGD([of_shared, of_offset], momentum=small.MOMENTUM)
        for images, labels in real:
            sgd.zero_grad()
            loss_at(world.model, shared + offset, images, labels).backward()
            sgd.step()
        return shared.detach() - theta, offset.detach()

    same(algorithm, small.averaged_with_own(world, client, world.start))


def same(algorithm, expected):
    """Compare the engine's global vector and what its clients keep."""
    theta, personal = expected
    end = small.played(algorithm)
    assert_close(end.theta, theta, rtol=1e-4, atol=1e-6)
    assert end.personal.keys() == personal.keys()
    for number, vector in personal.items():
        assert_close(end.personal[number], vector, rtol=1e-4, atol=1e-6)


def with_head(work, trained):
    """Put what the client keeps of its head into the update."""
    movement = trained.personal - work.theta[work.model.head]
    updates = torch.cat([trained.updates[:, :BODY], movement], 1)
    return replace(trained, updates=updates)


def head_released(algorithm):
    """Every parameter may leave, and the head is in the update."""
    split = replace(algorithm.split, shared=lambda model: None)
    return replace(after(with_head)(algorithm), split=split)


def _forgets(work, trained):
    return replace(trained, personal=work.personal)


def _with_offset(work, trained):
    return replace(trained, updates=trained.updates + trained.personal - work.personal)


def with_numbers(rho, head_rate):
    """The algorithm with other numbers in its local rule."""
    return having(local=alternating(head(), rho=rho, head_rate=head_rate))


HEADS = (
    Case("P-FedSAM", small.plan(), check_heads(RHO), {
        "no ascent": with_numbers(0.0, HEAD_RATE),
        "a head that is fixed": with_numbers(RHO, 0.0),
        "a head that is released": head_released,
        "a head that is forgotten": after(_forgets),
    }, {"rho": RHO, "head_rate": HEAD_RATE}),
    Case("DP2-FedSAM", small.plan(), check_heads(RHO), {
        "no ascent": with_numbers(0.0, HEAD_RATE),
        "descent in place of ascent": with_numbers(-RHO, HEAD_RATE),
        "a head that is released": head_released,
    }, {"rho": RHO, "head_rate": HEAD_RATE}),
    Case("CENTAUR", small.plan(), check_heads(0.0), {
        "ascent": with_numbers(RHO, HEAD_RATE),
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


HIDDEN = 16
RATE = 0.4
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
        head_values = zip(
            matrix.view(total, HIDDEN).split(sizes), biases.split(sizes), strict=True
        )
        with torch.no_grad():
            self.layer.weight.copy_(layer.view(HIDDEN, EMBEDDING))
            self.layer.bias.copy_(offsets)
            for head_of_tensor, (weight, bias) in zip(
                self.heads, head_values, strict=True
            ):
                head_of_tensor.weight.copy_(weight)
                head_of_tensor.bias.copy_(bias)

    def forward(self, embedding):
        """An embedding [E] to the tensors, flat."""
        hidden = self.layer(embedding).relu()
        return [head_of_tensor(hidden) for head_of_tensor in self.heads]

    def flat(self):
        """Its parameters [P], in the project's order."""
        weights = [head_of_tensor.weight.flatten() for head_of_tensor in self.heads]
        biases = [head_of_tensor.bias for head_of_tensor in self.heads]
        layer = [self.layer.weight.flatten(), self.layer.bias]
        return torch.cat([*layer, *weights, *biases]).detach()


def tensors(world):
    """Name and shape of the tensors of the body; the head's are the last two."""
    return list(world.model.shapes)[:-2]


class HyperflClient:
    """A client of HyperFL: hypernetwork, embedding, and a head of weight and bias.

    Args:
        world: the setting.
        theta: (hypernetwork, embedding, head) as sent to the client.
        personal: (embedding, head) that the client keeps; None before its first round.
    """

    def __init__(self, world, theta, personal):
        self._network = world.model.module()
        self._names = [name for name, _ in world.model.shapes]
        self._shapes = [shape for _, shape in tensors(world)]
        size = Hypernetwork(world.model.head.start, HIDDEN).parameters
        personal = theta[size:] if personal is None else personal
        embedding, weight, bias = personal.clone().split([EMBEDDING, 320, 10])
        self.hypernetwork = Plain(self._shapes, theta[:size])
        self.embedding = embedding.clone().requires_grad_()
        self.weight = weight.view(10, 32).clone().requires_grad_()
        self.bias = bias.clone().requires_grad_()

    def train(self, parameters, batches, rate):
        """SGD of some of the parameters."""
        sgd = torch.optim.SGD(parameters, rate, small.MOMENTUM)
        for images, labels in batches:
            sgd.zero_grad()
            generated = zip(
                self.hypernetwork(self.embedding), self._shapes, strict=True
            )
            body = [tensor.view(shape) for tensor, shape in generated]
            tensors_of_model = [*body, self.weight, self.bias]
            values = dict(zip(self._names, tensors_of_model, strict=True))
            logits = functional_call(self._network, values, (images,))
            nn.functional.cross_entropy(logits, labels).backward()
            sgd.step()


def check_client(algorithm):
    """HyperFL as a loop: head by SGD for a pass, then the others by autograd."""
    world = small.setting(algorithm)

    def train(theta, personal, real, rate):
        client = HyperflClient(world, theta, personal)
        head_of_client = [client.weight, client.bias]
        client.train(head_of_client, real[: a_pass(world, real)], HEAD_RATE * rate)
        client.train([*client.hypernetwork.parameters(), client.embedding], real, rate)
        ended = client.hypernetwork.flat()
        movement = torch.zeros_like(theta)
        movement[: len(ended)] = ended - theta[: len(ended)]
        personal_parts = [client.embedding, client.weight.flatten(), client.bias]
        return movement, torch.cat(personal_parts).detach()

    same(algorithm, small.averaged_with_own(world, train, world.start))


def a_pass(world, real):
    """Batches of one pass over a client's records, the last of which is short here."""
    return 1 + [len(labels) < world.local.batch_size for _, labels in real].index(True)


class PfedhnServer:
    """pFedHN as a loop: SGD of each client, then autograd through what was sent to it.

    Args:
        world: the setting.
        personal: whether each client keeps its head.
    """

    def __init__(self, world, personal):
        self._world = world
        self._keeps_head = personal
        named_shapes = tensors(world) if personal else world.model.shapes
        self._shapes = [shape for _, shape in named_shapes]
        self._size = Hypernetwork(BODY if personal else ALL, HIDDEN).parameters
        self.theta = world.start.clone()
        self.personal = {}

    def run(self, round_):
        """One round."""
        step = torch.zeros_like(self.theta)
        for number in map(int, np.concatenate(participants(self._world, round_))):
            self._add_step(step, number, round_)
        self.theta = self.theta + step

    def _add_step(self, step, number, round_):
        """What a client's training changes of hypernetwork and embedding."""
        plain = Plain(self._shapes, self.theta[: self._size])
        begin = self._size + number * EMBEDDING
        place = slice(begin, begin + EMBEDDING)
        embedding = self.theta[place].clone().requires_grad_()
        sent = torch.cat(plain(embedding))
        sent.backward(self._trained(sent.detach(), number, round_))
        step[place] += RATE * embedding.grad
        for weight in plain.parameters():
            weight.data = weight.grad
        step[: self._size] += RATE * plain.flat() / small.COHORT

    def _trained(self, sent, number, round_):
        """The movement of a client from what it was sent."""
        first_head = self.theta[self._size + POPULATION * EMBEDDING :]
        start = torch.cat([sent, self.personal.get(number, first_head)])
        network = small.network_at(self._world, start)
        sgd = small.sgd(network, self._world.learning_rate(round_))
        with one_core():
            for images, labels in small.mini_batches(self._world, round_, number):
                sgd.zero_grad()
                small.loss(network, images, labels).backward()
                sgd.step()
        ended = small.flat(network)
        if self._keeps_head:
            self.personal[number] = ended[BODY:].clone()
        return (ended - start)[: len(sent)]


def check_server(*, personal):
    """Compare with pFedHN as a loop."""

    def check(algorithm):
        server = PfedhnServer(small.setting(algorithm), personal)
        for round_ in range(1, small.ROUNDS + 1):
            server.run(round_)
        same(algorithm, (server.theta, server.personal))

    return check


def _forgets_embedding(work, trained):
    embedding_and_head = [work.personal[:, :EMBEDDING], trained.personal[:, EMBEDDING:]]
    return replace(trained, personal=torch.cat(embedding_and_head, 1))


def with_own(work, trained):
    """Put embedding and head beside the update of the hypernetwork."""
    size = Hypernetwork(work.model.head.start, HIDDEN).parameters
    movement = trained.personal - work.theta[size:]
    updates = torch.cat([trained.updates[:, :size], movement], 1)
    return replace(trained, updates=updates)


def own_released(algorithm):
    """Everything may leave, and embedding and head are in the update."""
    split = replace(algorithm.split, shared=lambda model: None)
    return replace(after(with_own)(algorithm), split=split)


def _embeddings_fixed(algorithm):
    inner = algorithm.aggregator

    def combine(releases, theta, state):  # type: ignore[no-untyped-def]
        step, state = inner.combine(releases, theta, state)
        head_size = HEAD if "PC" in algorithm.name else 0
        step[len(theta) - POPULATION * EMBEDDING - head_size :] = 0
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
    spec = plan.spec.model_copy(update={"model": planned})
    return plan.model_copy(update={"spec": spec})


def with_fixed_head(algorithm):
    """HyperFL whose heads do not move."""
    local = hypernetwork_sgd(algorithm.split, hidden=HIDDEN, head_rate=0.0)
    return replace(algorithm, local=local)


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
        "a head that is fixed": with_fixed_head,
    }, {**NUMBERS, "head_rate": HEAD_RATE})
    for name, plan in (("HyperFL", small.plan()), ("HyperFL-LPM", frozen(small.plan())))
)  # fmt: skip
CASES = (*OWN_CASES, *SERVER, *CLIENT)
