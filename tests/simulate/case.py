"""What shows that a method does what defines it: a reference, and mutations that it catches."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from privplan.plan import Plan
from simulate.algorithm import Algorithm
from simulate.algorithms.registry import ALGORITHMS, Hyperparameters
from simulate.components import Server

Mutation = Callable[[Algorithm], Algorithm]


@dataclass(frozen=True)
class Case:
    """A method of the catalogue against its reference."""

    name: str
    plan: Plan
    check: Callable[
        [Algorithm], None
    ]  # compares with the reference; fails by an assertion
    mutations: Mapping[
        str, Mutation
    ]  # what goes wrong, to the algorithm with that fault
    numbers: Mapping[str, float] = field(
        default_factory=dict
    )  # that are not its defaults

    def build(self):
        """The algorithm as registered."""
        return ALGORITHMS.get(self.name).build(
            self.plan, Hyperparameters(values=self.numbers)
        )


def having(**components):
    """The algorithm with other components."""
    return lambda one: replace(one, **components)


def double_weights(one):
    """The server divides by half of the expected cohort."""
    rule = one.aggregator.weight
    twice = replace(one.aggregator, weight=lambda group, plan: 2 * rule(group, plan))
    return replace(one, aggregator=twice)


def after(change):
    """The algorithm whose clients do something else after training."""

    def changed(one):
        train = one.local.train
        return having(
            local=replace(one.local, train=lambda work: change(work, train(work)))
        )(one)

    return changed


def _with_batches(change):
    """The algorithm whose clients train on other batches."""

    def changed(one):
        train = one.local.train
        return replace(
            one, local=replace(one.local, train=lambda batch: train(change(batch)))
        )

    return changed


slower = _with_batches(
    lambda batch: replace(batch, learning_rate=batch.learning_rate / 2)
)
without_momentum = _with_batches(lambda batch: replace(batch, momentum=0.0))


def backwards(one):
    """The server steps the other way."""
    inner = one.server
    server = Server(
        inner.name,
        inner.start,
        lambda theta, step, state: inner.step(theta, -step, state),
    )
    return replace(one, server=server)
