"""What shows that a method does what defines it: a reference, and mutations it sees."""

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
    # Compares with the reference, and fails by an assertion.
    check: Callable[[Algorithm], None]
    # By what goes wrong: makes the algorithm with that fault.
    mutations: Mapping[str, Mutation]
    # Numbers of the method that are not its defaults.
    numbers: Mapping[str, float] = field(default_factory=dict)

    def build(self):
        """The algorithm as registered."""
        return ALGORITHMS.get(self.name).build(
            self.plan, Hyperparameters(values=self.numbers)
        )


def having(**components):
    """The algorithm with other components."""
    return lambda algorithm: replace(algorithm, **components)


def double_weights(algorithm):
    """The server divides by half of the expected cohort."""
    rule = algorithm.aggregator.weight
    twice = replace(
        algorithm.aggregator, weight=lambda group, plan: 2 * rule(group, plan)
    )
    return replace(algorithm, aggregator=twice)


def after(change):
    """The algorithm whose clients do something else after training."""

    def changed(algorithm):
        train = algorithm.local.train
        return having(
            local=replace(algorithm.local, train=lambda work: change(work, train(work)))
        )(algorithm)

    return changed


def _with_batches(change):
    """The algorithm whose clients train on other batches."""

    def changed(algorithm):
        train = algorithm.local.train
        return replace(
            algorithm,
            local=replace(algorithm.local, train=lambda batch: train(change(batch))),
        )

    return changed


slower = _with_batches(
    lambda batch: replace(batch, learning_rate=batch.learning_rate / 2)
)
without_momentum = _with_batches(lambda batch: replace(batch, momentum=0.0))


def backwards(algorithm):
    """The server steps the other way."""
    inner = algorithm.server
    server = Server(
        inner.name,
        inner.start,
        lambda theta, step, state: inner.step(theta, -step, state),
    )
    return replace(algorithm, server=server)
