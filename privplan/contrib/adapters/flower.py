"""Flower (1.41 and 1.42): a strategy under a plan, a client mod, an accountant.

::

    strategy = guarded(FedAdam(), "plan.json", "run")                           # server
    from privplan.contrib.adapters.flower import GuardedClientApp as ClientApp  # client

Clients are numbered, by the node configuration ``privplan-client`` or else
``partition-id``; who is in which group is stated by ``members``. The wrapped strategy
receives the noised mean as the one reply of a round, so that what it does is
post-processing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from logging import INFO, WARNING, getLogger
from pathlib import Path
from typing import Any

import numpy as np

from privplan.accounting.curve import PrivacyCurve
from privplan.accounting.release import Relation, Release, SamplingLaw
from privplan.contrib.adapters.members import members_of, opened, updates_of
from privplan.errors import InputError
from privplan.guard import BudgetExceededError, Cohort, Guard, Layout, clip

try:
    from flwr.app import (
        Array,
        ArrayRecord,
        ConfigRecord,
        Context,
        Message,
        MessageType,
        MetricRecord,
        RecordDict,
    )
    from flwr.clientapp import ClientApp
    from flwr.serverapp.exception import PrivacyBudgetExhausted
    from flwr.serverapp.strategy import Result, Strategy
    from flwr.supercore.privacy_accounting import (
        GaussianPrivacyEvent,
        PrivacyConfig,
        PrivacySpent,
    )
except ImportError as error:
    raise ImportError(
        "privplan.contrib.adapters.flower needs flwr 1.41 or 1.42"
    ) from error


# Relative gap between the bounds of the accountant.
_TOLERANCE = 1e-4


class GroupAccountant:
    """Flower's ``PrivacyAccountant`` for the clients of one group.

    The sampling law and the relation are those given here, not those of Flower's
    configuration. Its label is wrong for what Flower does: the strategies draw a cohort
    of fixed size, whose guarantee under adding or removing a client ``PrivacyConfig``
    cannot name. The fixed-clipping strategies demand the label ``no-amplification``,
    whose epsilon holds but is far too high for a drawn cohort; under the other two
    labels it is too low. Give the configuration that the strategy demands, and read
    epsilon here.

    Args:
        config: Flower's configuration; delta, population and the limit on epsilon are
            used.
        sampling: the law that is executed.
        relation: which populations are neighbours.
    """

    def __init__(
        self,
        config: PrivacyConfig,
        sampling: SamplingLaw | str = SamplingLaw.FIXED_SIZE,
        relation: Relation | str = Relation.ADD_REMOVE,
    ) -> None:
        self._config = config
        self._sampling = SamplingLaw(sampling)
        self._relation = Relation(relation)
        self.curve = PrivacyCurve(self._relation, tolerance=_TOLERANCE)

    @property
    def config(self) -> PrivacyConfig:
        """Flower's configuration."""
        return self._config

    @property
    def num_releases(self) -> int:
        """Number of releases so far."""
        return self.curve.rounds

    def compose(self, event: GaussianPrivacyEvent, count: int = 1) -> None:
        """Add releases."""
        self.curve.step(self._release(event), _positive(count))

    def get_epsilon(self, delta: float) -> float:
        """Upper bound on epsilon."""
        return self.curve.epsilon(delta).upper

    def get_delta(self, epsilon: float) -> float:
        """Upper bound on delta."""
        return self.curve.delta(epsilon, tolerance=_TOLERANCE).upper

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        """The upper bound on epsilon, by default at the configuration's delta."""
        if delta is None:
            delta = self._config.target_delta
        return PrivacySpent(self.get_epsilon(delta), delta, self.num_releases, "pld")

    def would_exceed(
        self,
        event: GaussianPrivacyEvent,
        max_epsilon: float | None = None,
        count: int = 1,
    ) -> bool:
        """Whether the releases would exceed a limit on epsilon.

        By default it is that of the configuration.
        """
        limit = self._config.max_epsilon if max_epsilon is None else max_epsilon
        if limit is None or not limit > 0:
            raise InputError.one("max_epsilon", "must be positive", limit)
        after = PrivacyCurve(self._relation, tolerance=_TOLERANCE).step(
            self.curve.history
        )
        after.step(self._release(event), _positive(count))
        return after.epsilon(self._config.target_delta).upper > limit

    def state_dict(self) -> dict[str, object]:
        """The releases so far, as plain data for JSON."""
        rows = [
            [release.noise_multiplier, release.sampling_ratio, count]
            for release, count in self.curve.history
        ]
        return {
            "sampling": self._sampling,
            "relation": self._relation,
            "releases": rows,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the releases by those of a state; unchanged when it has a fault."""
        if {**state, "releases": []} != {**self.state_dict(), "releases": []}:
            raise InputError.one(
                "state_dict", f"must be like {self.state_dict()}", state
            )
        releases = [
            (Release(noise_multiplier, ratio, self._sampling), count)
            for noise_multiplier, ratio, count in state.get("releases", ())
        ]
        self.curve = PrivacyCurve(self._relation, tolerance=_TOLERANCE).step(releases)

    def _release(self, event: GaussianPrivacyEvent) -> Release:
        population = self._config.population_size
        if event.population_size != population:
            rule = f"must be {population}, as in the configuration"
            raise InputError.one("population_size", rule, event.population_size)
        full = self._sampling.law.everyone
        ratio = 1.0 if full else event.sample_size / population
        return Release(event.noise_multiplier, ratio, self._sampling)


def _positive(count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InputError.one("count", "must be a whole number, 1 or more", count)
    return count


# Which strategies of Flower can be wrapped, and what they keep between rounds.

_COMPARES = "it compares the updates of single clients, which a plan's noisy sum does not contain"
_OWN_NOISE = "it adds noise of its own; wrap the strategy inside it"
REFUSED = {
    "Krum": _COMPARES,
    "MultiKrum": _COMPARES,
    "Bulyan": _COMPARES,
    "FedMedian": _COMPARES,
    "FedTrimmedAvg": _COMPARES,
    "QFedAvg": "it weights updates by the losses of clients, which no noise protects",
    "FedXgbBagging": "it collects trees, whose sensitivity clipping does not bound",
    "FedXgbCyclic": "it passes trees from client to client without any noise",
    "DifferentialPrivacyFixedClippingBase": _OWN_NOISE,
    "DifferentialPrivacyAdaptiveBase": _OWN_NOISE,
}
"""Strategies that cannot be wrapped, with the reason."""
# Where the stored arrays of a round have the model, and what a strategy keeps.
_ARRAYS = "arrays/"
_STATE = "state"


def check_strategy(strategy: object) -> None:
    """Refuse a strategy that does not work on one noised mean."""
    for base in type(strategy).__mro__:
        if base.__name__ in REFUSED and base.__module__.startswith("flwr."):
            rule = f"must work on one noised mean; {REFUSED[base.__name__]}"
            raise InputError.one("strategy", rule, type(strategy).__name__)


def state_of(strategy: object) -> dict[str, np.ndarray]:
    """Arrays that a strategy keeps between rounds, such as the moments of FedAdam."""
    arrays: dict[str, np.ndarray] = {}
    for name, value in vars(strategy).items():
        items: Iterable[tuple[Any, Any]] = ()
        kind = "list"
        if isinstance(value, dict):
            kind = "dict"
            items = value.items()
        elif isinstance(value, list):
            items = enumerate(value)
        for key, item in items:
            # Arithmetic makes numbers of arrays without dimensions.
            if isinstance(item, np.ndarray | np.generic):
                arrays[f"{_STATE}/{name}/{kind}/{key}"] = np.asarray(item)
    return arrays


def restore_state(strategy: object, stored: Mapping[str, np.ndarray]) -> None:
    """Give a strategy back what ``state_of`` returned."""
    values: dict[str, Any] = {}
    for name, array in stored.items():
        if name.startswith(f"{_STATE}/"):
            _, attribute, kind, key = name.split("/", 3)
            value = values.setdefault(attribute, {} if kind == "dict" else [])
            if kind == "dict":
                value[key] = array
            else:
                value.append(array)
    for attribute, value in values.items():
        setattr(strategy, attribute, value)


# The client mod that clips, and the strategy that executes a plan.

CLIPPING_NORM = "privplan-clipping-norm"
_logger = getLogger("flwr")
log = _logger.log
IDENTIFY = "privplan-identify"
CLIENT = "privplan-client"
ANSWER_SECONDS = 600
"""Seconds to wait for the client numbers of new nodes."""
NOT_FINITE = "aggregate_train: %d of %d updates are not finite and count as zero"
"""What the log says of updates that are excluded, and of how many."""


def clipping_mod(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """Clip the update of a training reply, and tell the server the client's number.

    The server clips again, so that the guarantee does not depend on the client;
    clipping here keeps what is longer on the client.
    """
    configs = message.content.config_records
    config: Mapping[str, Any] = next(iter(configs.values()), {})
    if IDENTIFY in config:
        number = context.node_config.get(
            CLIENT, context.node_config.get("partition-id", -1)
        )
        content = RecordDict({"config": ConfigRecord({CLIENT: number})})
        return Message(content, reply_to=message)
    received = next(iter(message.content.array_records.values()), None)
    norm = config.get(CLIPPING_NORM)
    reply = call_next(message, context)
    if norm is None or received is None or reply.has_error():
        return reply
    before = arrays_of(received)
    layout = Layout.of(before)
    start = layout.vector(before)
    for name, record in reply.content.array_records.items():
        after = arrays_of(record)
        update = layout.vector(after) - start
        # Otherwise the server counts it as lost, and adds zero.
        if np.isfinite(update).all():
            vector = start + clip(update, float(norm))
            reply.content[name] = record_of(layout.arrays(vector, after))
    return reply


class GuardedClientApp(ClientApp):  # type: ignore[misc]
    """Flower's ``ClientApp`` with ``clipping_mod`` around all that it does."""

    def __init__(
        self, client_fn: Any = None, mods: Sequence[Any] | None = None
    ) -> None:
        super().__init__(client_fn, [clipping_mod, *(mods or ())])


class GuardedStrategy(Strategy):  # type: ignore[misc]
    """A strategy of Flower under a plan.

    It draws the planned cohorts from the registered clients, clips and scales their
    updates, adds the planned noise, books each release before its result is sent, and
    halts before the round that would overspend: ``start`` returns the last model. After
    an interruption the same call of ``start`` goes on from the last release. Metrics of
    clients are protected by no noise; those of training are dropped, and clients are
    asked to evaluate only on request.

    Args:
        strategy: what is done with the noised mean, such as ``FedAvg``, ``FedAvgM``,
            ``FedAdam``.
        guard: the guard of the run.
        members: numbers of the clients of each group; by default consecutive numbers
            from 0, in the plan's order of groups.
        number_of: number of the client of a node; by default the nodes are asked, which
            needs ``clipping_mod``.
        evaluate: whether clients evaluate the model; what they report is not covered by
            epsilon.

    Raises:
        InputError: when the strategy cannot be wrapped, or the members are not those of
            the plan.
    """

    def __init__(
        self,
        strategy: Strategy,
        guard: Guard,
        members: Mapping[str, Sequence[int]] | None = None,
        *,
        number_of: Callable[[int], int] | None = None,
        evaluate: bool = False,
    ) -> None:
        super().__init__()
        check_strategy(strategy)
        self.strategy = strategy
        self.guard = guard
        self._member = members_of(guard, members, itertools.count())
        self._number_of = number_of
        self._evaluate = evaluate
        self._nodes: dict[int, tuple[str, int]] = {}
        self._cohort: Cohort | None = None
        self._sent: dict[str, np.ndarray] = {}
        self._result = Result()

    def summary(self) -> None:
        """Log the wrapped strategy and the plan."""
        self.strategy.summary()
        for group in self.guard.plan.groups:
            text = (
                "\t> group %s: epsilon %g at delta %.3g, ratio %g, noise multiplier %g"
            )
            log(
                INFO,
                text,
                group.name,
                group.epsilon,
                group.delta,
                group.sampling_ratio,
                group.noise_multiplier,
            )

    def start(
        self,
        grid: Any,
        initial_arrays: ArrayRecord,
        num_rounds: int | None = None,
        *args: Any,
        **extra: Any,
    ) -> Any:
        """Train from the last stored model, or from ``initial_arrays``.

        As ``Strategy.start``. A run whose budget ends first returns as one that is
        complete, with a line in the log.
        """
        if num_rounds is None:
            rounds = self.guard.plan.spec.rounds
        else:
            rounds = num_rounds
        names = ("timeout", "train_config", "evaluate_config", "evaluate_fn")
        extra = {**dict(zip(names, args, strict=False)), **extra}
        evaluate_fn = extra.get("evaluate_fn")
        result = self._result

        def evaluated(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            metrics: MetricRecord | None = None
            if evaluate_fn:
                metrics = evaluate_fn(server_round, arrays)
            if metrics is not None:
                result.evaluate_metrics_serverapp[server_round] = metrics
            return metrics

        try:
            arrays = self._restore() or initial_arrays
            extra["evaluate_fn"] = evaluate_fn and evaluated
            done = super().start(grid, arrays, rounds, **extra)
            # All rounds were booked before: no step was left to make.
            done.arrays = done.arrays or arrays
            return done
        except PrivacyBudgetExhausted as ended:
            last = self.guard.round - 1
            text = "Training ends after round %d, the last that is paid: %s"
            log(WARNING, text, last, ended)
            result.arrays = self._restore() or initial_arrays
            return result
        finally:
            self.guard.close()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any
    ) -> Iterable[Message]:
        """Messages to the round's cohort; none for a round that is booked already."""
        self._cohort = None
        self._sent = arrays_of(arrays)
        interrupted = self.guard.interrupted
        if server_round < self.guard.round:
            if interrupted is not None and interrupted.round == server_round:
                self._template(server_round, arrays, config)
            return []
        refusal = self.guard.refusal()
        if refusal is not None:
            raise PrivacyBudgetExhausted(refusal)
        template = self._template(server_round, arrays, config)
        try:
            self._cohort = self.guard.draw(server_round, self._available(grid))
        except BudgetExceededError as error:
            raise PrivacyBudgetExhausted(str(error)) from None
        for sentence in self._cohort.guarantee:
            log(WARNING, "configure_train: %s", sentence)
        node_of = {member: node for node, member in self._nodes.items()}
        return [
            self._message(template, group, node_of[group, client])
            for group, client in self._cohort.members
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The model after the wrapped strategy's step with the noised mean."""
        guard = self.guard
        if server_round < guard.round:
            interrupted = guard.interrupted
            if interrupted is not None and interrupted.round == server_round:
                return self._step(server_round, interrupted.mean), None
            return None, None
        reported = self._reported(replies)
        cohort = self._cohort
        # A round that failed would say that nobody was drawn who reports.
        if cohort is not None and len(cohort) and not reported:
            text = "aggregate_train: none of %d drawn clients reported: only noise"
            log(WARNING, text, len(cohort))
        self._add(server_round, reported)
        nobody = None
        if not reported:
            size = Layout.of(self._sent).size
            nobody = {guard.plan.groups[0].name: np.zeros(size)}
        released = guard.release(server_round, nobody)
        return self._step(server_round, released.mean), None

    def _add(
        self, server_round: int, reported: Mapping[tuple[str, int], RecordDict]
    ) -> None:
        """Give the clients' updates to the guard, and warn of those that are lost."""
        layout = Layout.of(self._sent)
        start = layout.vector(self._sent)
        updates = updates_of(layout, start, reported, _arrays_in)
        for (group, position), update in updates.items():
            self.guard.add(server_round, group, position, update)
        groups = {group for group, _ in reported}
        lost = sum(self.guard.total(group).excluded for group in groups)
        if lost:
            log(WARNING, NOT_FINITE, lost, len(reported))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any
    ) -> Iterable[Message]:
        """Messages of the wrapped strategy, if clients evaluate."""
        if not self._evaluate:
            return []
        messages: Iterable[Message] = self.strategy.configure_evaluate(
            server_round, arrays, config, grid
        )
        return messages

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Metrics of the wrapped strategy, if clients evaluate.

        No noise protects them.
        """
        if not self._evaluate:
            return None
        metrics: MetricRecord | None = self.strategy.aggregate_evaluate(
            server_round, replies
        )
        if metrics is not None:
            self._result.evaluate_metrics_clientapp[server_round] = metrics
        return metrics

    def _available(self, grid: Any) -> dict[str, list[int]]:
        """Positions of the connected clients, by group.

        Waits for as many as the strategy does.
        """
        from time import sleep

        required = int(getattr(self.strategy, "min_available_nodes", 1))
        nodes = sorted(grid.get_node_ids())
        while len(nodes) < required:
            text = "Waiting for nodes: %d connected, %d required."
            log(INFO, text, len(nodes), required)
            sleep(1)
            nodes = sorted(grid.get_node_ids())

        # A client may come back as another node, which has its number then.
        self._nodes = {node: self._nodes[node] for node in nodes if node in self._nodes}
        # Nodes that were not there before are asked which client they are.
        new_nodes = [node for node in nodes if node not in self._nodes]
        for node, number in self._numbers(new_nodes, grid).items():
            member = self._member.get(number)
            if member is None or member in self._nodes.values():
                text = "node %s is not used: %s is no free client number"
                log(WARNING, text, node, number)
            else:
                self._nodes[node] = member
        positions: dict[str, list[int]] = {}
        for node in nodes:
            if node in self._nodes:
                group, position = self._nodes[node]
                positions.setdefault(group, []).append(position)
        return positions

    def _numbers(self, nodes: Sequence[int], grid: Any) -> dict[int, int]:
        """Client numbers of nodes."""
        if self._number_of is not None:
            return {node: self._number_of(node) for node in nodes}
        if not nodes:
            return {}
        content = RecordDict({"config": ConfigRecord({IDENTIFY: 1})})
        questions = [
            Message(content=content, message_type=MessageType.TRAIN, dst_node_id=node)
            for node in nodes
        ]
        numbers: dict[int, int] = {}
        silent = []
        for reply in grid.send_and_receive(questions, timeout=ANSWER_SECONDS):
            configs = {} if reply.has_error() else reply.content.config_records
            answer: Mapping[str, Any] = next(iter(configs.values()), {})
            node = int(reply.metadata.src_node_id)
            try:
                numbers[node] = int(answer.get(CLIENT))  # type: ignore[arg-type]
            except (TypeError, ValueError, OverflowError):
                silent.append(node)
        if silent and not numbers and not self._nodes:
            rule = (
                "must be a GuardedClientApp of privplan.contrib.adapters.flower, which "
                "clips"
            )
            raise InputError.one("client", rule, f"node {silent[0]}")
        for node in silent:
            text = "node %s is not used: it does not tell its client number"
            log(WARNING, text, node)
        return numbers

    def _template(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord
    ) -> RecordDict:
        """What the wrapped strategy sends to each client in the round."""
        # The number of sampled nodes that it logs would be that of the template.
        level = _logger.level
        _logger.setLevel(WARNING)
        try:
            nodes = _Nodes(self.strategy)
            messages = list(
                self.strategy.configure_train(server_round, arrays, config, nodes)
            )
        finally:
            _logger.setLevel(level)
        if not messages:
            raise InputError.one("strategy.fraction_train", "must be positive", 0.0)
        content: RecordDict = messages[0].content
        return content

    def _message(self, template: RecordDict, group: str, node: int) -> Message:
        """A training message with the clipping norm of the client's group."""
        content = RecordDict(dict(template.items()))
        configs = template.config_records
        name, config = next(iter(configs.items()), ("config", ConfigRecord()))
        norm = self.guard.clipping_norm(group)
        content[name] = ConfigRecord({**config, CLIPPING_NORM: norm})
        return Message(
            content=content, message_type=MessageType.TRAIN, dst_node_id=node
        )

    def _reported(
        self, replies: Iterable[Message]
    ) -> dict[tuple[str, int], RecordDict]:
        """Contents of the replies of drawn clients, of each the last."""
        if self._cohort is None:
            members = set()
        else:
            members = set(self._cohort.members)
        reported: dict[tuple[str, int], RecordDict] = {}
        for reply in replies:
            node = reply.metadata.src_node_id
            member = self._nodes.get(node)
            if reply.has_error():
                log(WARNING, "node %s failed: %s", node, reply.error.reason)
            elif member is not None and member in members:
                reported[member] = reply.content
        text = "aggregate_train: %d of %d drawn clients reported"
        log(INFO, text, len(reported), len(members))
        return reported

    def _step(self, server_round: int, mean: np.ndarray) -> ArrayRecord:
        """Hand the noised mean to the wrapped strategy as a reply; store its model."""
        layout = Layout.of(self._sent)
        model = layout.arrays(layout.vector(self._sent) + mean, self._sent)
        weight = str(getattr(self.strategy, "weighted_by_key", "num-examples"))
        key = str(getattr(self.strategy, "arrayrecord_key", "arrays"))
        content = RecordDict(
            {key: record_of(model), "metrics": MetricRecord({weight: 1.0})}
        )
        reply = Message(content=content, message_type=MessageType.TRAIN, dst_node_id=1)
        arrays, _ = self.strategy.aggregate_train(server_round, [reply])
        averaged = arrays_of(arrays or record_of(model))
        # Its mean makes integers floating-point numbers, and vectors of single numbers.
        shaped = {
            name: averaged[name].reshape(array.shape)
            for name, array in self._sent.items()
            if name in averaged and averaged[name].size == array.size
        }
        new_model = layout.arrays(layout.vector(shaped), self._sent)
        stored = {f"{_ARRAYS}{name}": array for name, array in new_model.items()}
        self.guard.record(server_round, {**stored, **state_of(self.strategy)})
        return record_of(new_model)

    def _restore(self) -> ArrayRecord | None:
        """The last stored model; the wrapped strategy gets its state back."""
        stored = self.guard.model
        if stored is None:
            return None
        restore_state(self.strategy, stored)
        arrays = {
            name.removeprefix(_ARRAYS): array
            for name, array in stored.items()
            if name.startswith(_ARRAYS)
        }
        return record_of(arrays)


def guarded(
    strategy: Strategy, plan: Path | str, run: Path | str, **options: Any
) -> Any:
    """A strategy under the plan of a file, with its ledger in a folder.

    See ``GuardedStrategy``.
    """
    return GuardedStrategy(strategy, opened(plan, run, "Flower"), **options)


class _Nodes:
    """A grid with as many nodes as a strategy waits for.

    Messages to them are only templates.
    """

    def __init__(self, strategy: Strategy) -> None:
        available = int(getattr(strategy, "min_available_nodes", 1))
        trained = int(getattr(strategy, "min_train_nodes", 1))
        self._count = max(1, available, trained)

    def get_node_ids(self) -> list[int]:
        """Numbers of the nodes."""
        return list(range(1, self._count + 1))


def _arrays_in(content: RecordDict) -> dict[str, np.ndarray] | None:
    """The arrays of a reply; None without any."""
    for record in content.array_records.values():
        return arrays_of(record)
    return None


def arrays_of(record: ArrayRecord) -> dict[str, np.ndarray]:
    """A record of Flower as named arrays."""
    return {name: array.numpy() for name, array in record.items()}


def record_of(arrays: Mapping[str, np.ndarray]) -> ArrayRecord:
    """Named arrays as a record of Flower."""
    return ArrayRecord(
        {name: Array(np.asarray(array, order="C")) for name, array in arrays.items()}
    )
