"""The plan: what each group does, why, and the certificate of each budget."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from privplan.accounting.accountant import at_most
from privplan.accounting.audibility import audibility
from privplan.accounting.calibrate import PLD
from privplan.accounting.certificate import Certificate
from privplan.accounting.release import (
    History,
    Release,
    SamplingLaw,
    Unit,
    identity,
    named_unit,
)
from privplan.errors import Fault, InputError
from privplan.file_kinds import PLAN, refuse_other_kind
from privplan.files import load_json, read_text, write_text
from privplan.guidance import called_first, checked_call
from privplan.laws.rank_one import RankOneFactors
from privplan.presenter import presenter
from privplan.promise import GUARANTEES, require_certified
from privplan.spec.groups import Group
from privplan.spec.removed import Location, put_back, set_aside
from privplan.spec.spec import Spec
from privplan.values import (
    Checked,
    Count,
    Fraction,
    Named,
    NonNegative,
    Positive,
    Probability,
    Shown,
    Value,
    digest,
    is_none,
    parse,
    rule,
)

# Relative error of two computations of one number, as of a product in another order.
_ROUNDING = 1e-9
# Weights of one sum follow from noise multipliers of ten digits, some of them raised.
_SHARE_ROUNDING = 1e-4
# Beginning of the names of this project's modules.
_PRIVPLAN = "privplan."
# Of a plan that protects records, and of no other.
_FIELDS_OF_RECORDS = ("records", "record_sampling_ratio", "steps", "participations")
Accuracy = Annotated[NonNegative, Field(le=1)]


class BookBudget(Value):
    """A group's budget over all runs, in a plan that starts from a budget book.

    Attributes:
        rule: how past runs and this one are composed: renyi or gaussian, filters that
            hold when runs are chosen after seeing earlier ones; exact, for runs that
            were fixed before the first result.
        phrase: the rule as text, with the order of the Rényi filter.
        budget: epsilon over all runs.
        spent: epsilon of the past runs under the rule.
        total: epsilon of the past runs and this one, if it executes its plan.
        exact_total: total under exact composition; absent where that is the rule, or
            only the cost of past runs is known.
        exact_noise_multiplier: that this run would need then; absent as the total.
    """

    group: str
    rule: Literal["renyi", "gaussian", "exact"]
    phrase: str
    budget: Positive
    spent: NonNegative
    total: NonNegative
    noise_multiplier: Positive
    exact_total: NonNegative | None = Field(None, exclude_if=is_none)
    exact_noise_multiplier: Positive | None = Field(None, exclude_if=is_none)

    @property
    def adaptivity(self) -> str | None:
        """What it costs that this run is chosen after seeing earlier ones, one line."""
        if self.exact_total is None or self.exact_noise_multiplier is None:
            return None
        added = self.noise_multiplier / self.exact_noise_multiplier - 1
        return (
            f"{self.group}: adaptivity costs {max(added, 0.0):.1%} more noise: exact "
            "composition, valid only for runs that were all fixed before the first "
            f"result, counts {at_most(self.exact_total, 6)} instead of "
            f"{at_most(self.total, 6)} and would need noise multiplier "
            f"{self.exact_noise_multiplier:.6g} instead of {self.noise_multiplier:.6g}"
        )


def book_lines(budgets: Iterable[BookBudget] | None) -> list[str]:
    """Budgets over all runs and what adaptivity costs, as lines of text."""
    lines = []
    for budget in budgets or ():
        lines.append(
            f"{budget.group}: {at_most(budget.total, 6)} of {budget.budget:g} over all "
            f"runs, {at_most(budget.spent, 6)} before this one ({budget.phrase})"
        )
        if budget.adaptivity:
            lines.append(budget.adaptivity)
    return lines


class NoiseFactors(Value):
    """The factors by which each round takes back noise of all earlier ones.

    Attributes:
        diagonal: of each round's own sum.
        rows: of each round on the running sum of those before it.
        columns: of each round's sum in the running sum.
    """

    diagonal: tuple[Positive, ...]
    rows: tuple[Positive, ...]
    columns: tuple[Positive, ...]

    @classmethod
    def of_law(cls, sampling: SamplingLaw) -> NoiseFactors | None:
        """Those of a law; None for laws without a running sum."""
        factors = sampling.law.rank_one_factors()
        if factors is None:
            return None
        diagonal, rows, columns = factors.arrays
        return cls(diagonal=diagonal, rows=rows, columns=columns)

    def faults(self, sampling: SamplingLaw) -> Iterator[Fault]:
        """Norms above 1, computed again, and factors of another law."""
        try:
            factors = RankOneFactors(self.diagonal, self.rows, self.columns)
        except InputError as error:
            for fault in error.faults:
                yield Fault("noise_factors", fault.rule, fault.found)
            return
        norm = factors.largest_norm()
        if norm > 1:
            yield Fault("noise_factors", "must have columns of norm 1 at most", norm)
        if factors != sampling.law.rank_one_factors():
            yield Fault("noise_factors", "must be those of the law", str(sampling))


class ComparedLaw(Value):
    """A sampling law, or a family of laws, that a planner compared with others.

    Attributes:
        sampling: its name.
        noise: of its plan's last model, as independent noise of the mean update, in
            norm over the clipping norm; None where there is no plan.
        reason: why there is none.
    """

    sampling: str
    noise: Positive | None = None
    reason: str | None = Field(None, exclude_if=is_none)


class Proven(Value):
    """Whether the guarantee of a group was proven in exact arithmetic.

    Attributes:
        group: whose guarantee it is.
        outcome: ``proven``, or ``not proven`` and why.
        epsilon: upper bound of the certificate; None where that is infinite.
        delta: failure probability of the certificate.
        points: lattice points of the largest composed loss; 1 for a closed form.
        version: of the program that proves.
    """

    group: str
    outcome: str
    epsilon: NonNegative | None
    delta: Probability
    points: int = Field(ge=0)
    version: str


class Segment(Value):
    """A stretch of rounds in which a group is released in one way."""

    rounds: Count
    sampling_ratio: Fraction
    noise_multiplier: Positive


class GroupPlan(Value):
    """One group's part of the plan.

    Where ``segments`` say how it is released round by round, ratio and cohort are means
    over the rounds, and the noise multiplier is the least.

    Attributes:
        clients: of the group (N_m).
        contributions: the most clients, or records, of one person.
        sampling: its own law; the spec's when absent.
        sampling_ratio: chance to take part in a round, or in one of a client's turn
            (q_m).
        expected_cohort: clients in a round (r_m = q_m N_m).
        noise_multiplier: noise on the sum over the clipping norm (sigma_m).
        kept_fraction: of the coordinates, after the release (k_m / d).
        weight: of the group in the model's step (w_m); they sum to 1.
        scale: factor on clipped updates in a sum of all groups (s_m).
        clipping_norm: the group's own bound on an update (C_m); the spec's when absent.
        records: where records are protected, the least that a client holds (N_i).
        record_sampling_ratio: the chance of a record to be in a batch (b_i / N_i).
        steps: noisy steps per round, where records are protected.
        participations: rounds that a client takes part in at most, there.
    """

    name: str
    clients: Count
    epsilon: Positive
    delta: Probability
    contributions: Count = Field(1, exclude_if=lambda contributions: contributions == 1)
    sampling: SamplingLaw | None = Field(None, exclude_if=is_none)
    sampling_ratio: Fraction
    expected_cohort: Positive
    noise_multiplier: Positive
    kept_fraction: Fraction
    weight: NonNegative
    scale: Positive = 1.0
    clipping_norm: Positive | None = Field(None, exclude_if=is_none)
    segments: tuple[Segment, ...] | None = Field(None, exclude_if=is_none)
    records: Count | None = Field(None, exclude_if=is_none)
    record_sampling_ratio: Fraction | None = Field(None, exclude_if=is_none)
    steps: Count | None = Field(None, exclude_if=is_none)
    participations: Count | None = Field(None, exclude_if=is_none)

    @property
    def audibility(self) -> float:
        """How well the group is heard as a whole at any weight (N mu)."""
        return audibility(self.clients, self.epsilon, self.delta, self.contributions)

    @property
    def record_batch(self) -> float | None:
        """Records of a batch that a step divides by (b_i), if records are protected."""
        if self.records is None or self.record_sampling_ratio is None:
            return None
        return self.records * self.record_sampling_ratio

    @property
    def releases(self) -> int | None:
        """Noisy steps of a client over the whole run, where records are protected."""
        if self.steps is None or self.participations is None:
            return None
        return self.steps * self.participations


class Clipping(Value):
    """How the clipping norm follows a private quantile.

    With s_m the scales of the groups and C_1 the spec's clipping norm, round t of a
    plan with one release of all groups releases of one and the same cohort

        the sum    sum_m s_m sum_i clip_{C_t}(Delta_i), with noise of standard
                   deviation C_t update_noise_multiplier per coordinate,
        the count  sum_m s_m sum_i (1[|Delta_i| <= C_t] - 1/2), with noise of standard
                   deviation count_noise_multiplier,

    and goes on with C_{t+1} = C_t exp(-learning_rate (b_t - quantile)), where b_t is
    1/2 + the count / sum_m s_m r_m. A client of group m moves them by s_m C_t and
    s_m / 2, so sum and count are one release with the group's ``noise_multiplier``:
    (update_noise_multiplier / s_m)^-2 + (2 count_noise_multiplier / s_m)^-2 =
    sigma_m^-2. That is what history and certificate count, once per round. A ledger has
    one line for both: the sum over C_t and, as one more coordinate, the count times
    update / count_noise_multiplier, so that all coordinates have the same noise. Where
    a group has its own clipping norm C_m, its clients are clipped at and counted
    against C_t C_m / C_1, and s_m C_m / C_1 replaces s_m.

    With one release per group each group's sum has its own count, b_t adds the counts
    up with the weights of the sums, and the two noise multipliers are those of the
    group with the least noise multiplier; those of another group are sigma_m over that
    one times as large.

    Attributes:
        quantile: share of the updates that are not clipped.
        count_noise_multiplier: noise on the count, in clients of scale 1.
        update_noise_multiplier: noise on the sum, over C_t.
        learning_rate: step of log C per round.
    """

    quantile: Probability
    count_noise_multiplier: Positive
    update_noise_multiplier: Positive
    learning_rate: Positive

    @property
    def bound(self) -> float:
        """Norm of what a client of scale 1 adds to sum and count at most, over C_t."""
        count = self.update_noise_multiplier / self.count_noise_multiplier / 2
        return math.hypot(1.0, count)


class ObjectiveValue(Value):
    """What was minimised, and the value that was reached."""

    name: str
    value: float


class GroupForecast(Value):
    """Forecast test accuracy of a group, with the ends of its interval."""

    group: str
    accuracy: Accuracy
    lower: Accuracy
    upper: Accuracy


class Forecast(Value):
    """Forecast test accuracy, made before training from runs on proxy data.

    Attributes:
        level: share of plans like those of the proxy runs that intervals cover.
        distance: to the nearest proxy run, over the median distance between those.
        anchored: whether an accuracy that the user knew shifted the forecast.
        proxy: digest of the table of proxy runs.
        skew: that is assumed of the clients' labels; None in plans of version 0.2.
        assumes: which classes each group holds; absent in plans of earlier versions.
    """

    accuracy: Accuracy
    lower: Accuracy
    upper: Accuracy
    level: Probability
    groups: tuple[GroupForecast, ...]
    dataset: str
    runs: Count
    distance: NonNegative
    anchored: bool
    proxy: str
    skew: NonNegative | None = Field(None, exclude_if=is_none)
    assumes: str | None = Field(None, exclude_if=is_none)


def _same(stored: Any, computed: Any) -> bool:
    """Whether a stored value is the computed one, but for a number's last digits."""
    if isinstance(stored, float) and isinstance(computed, int | float):
        return math.isclose(stored, computed, rel_tol=_ROUNDING)
    return bool(stored == computed)


class Plan(Shown, Checked):
    """A solved spec. Made by ``privplan.solve``; kept as ``plan.json``.

    >>> plan.save("plan.json")
    >>> privplan.Plan.load("plan.json").groups["strict"].epsilon
    2.0

    Attributes:
        release: ``per_group``, one noisy sum per group; ``joint``, one noisy sum of all
            groups.
        mean_noise_std: noise of the weighted mean update a coordinate, at the spec's
            clipping norm.
        bound: terms of the objective by name.
        status: how far the solution is certified to be from the optimum.
        certificate: what each accountant says of each group's whole history.
        forecast: absent without proxy runs.
        book: absent in a plan that does not start from a book.
        proven: what was proven of the certificate; absent where nobody asked for it.
        noise_factors: absent where no running sum correlates the noise.
        compared_laws: of which the spec's has the least noise; absent where the law was
            stated.
    """

    schema_version: Literal[1, 2] = 2
    spec: Spec
    release: Literal["per_group", "joint"] = "per_group"
    groups: Named[GroupPlan]
    clipping: Clipping | None = Field(None, exclude_if=is_none)
    objective: ObjectiveValue
    bound: dict[str, float]
    mean_noise_std: NonNegative
    status: str
    certificate: Certificate
    warnings: tuple[str, ...] = Field(())
    forecast: Forecast | None = Field(None, exclude_if=is_none)
    book: tuple[BookBudget, ...] | None = Field(None, exclude_if=is_none)
    proven: tuple[Proven, ...] | None = Field(None, exclude_if=is_none)
    noise_factors: NoiseFactors | None = Field(None, exclude_if=is_none)
    compared_laws: tuple[ComparedLaw, ...] | None = Field(None, exclude_if=is_none)
    _removed: dict[Location, Any] = PrivateAttr(default_factory=dict)

    @property
    def removed(self) -> dict[Location, Any]:
        """Fields of a stored plan's spec that no longer exist, by where they stand."""
        return self._removed

    @property
    def guarantee(self) -> str:
        """Accountant of the certificate's guarantee."""
        return next((row.accountant for row in self.certificate if row.guarantee), PLD)

    @property
    def foreign_part(self) -> str | None:
        """A law or guarantee of another distribution; None where all are privplan's.

        What a release costs by it, and whom it draws, is its author's word.
        """
        for group in self.groups:
            law = self.law_of(group)
            if not type(law.law).__module__.startswith(_PRIVPLAN):
                return f"the law {law}"
        if self.guarantee != PLD:
            bound = GUARANTEES.get(self.guarantee)
            if not bound.__module__.startswith(_PRIVPLAN):
                return f"the guarantee {self.guarantee}"
        return None

    def refuse_in_book(self) -> None:
        """Refuse a guarantee that counts more than the releases of one run.

        Raises:
            InputError: where that is so.
        """
        if self.guarantee != PLD:
            rule = "cannot go with a book, which counts the releases of single runs"
            guarantee = f"a guarantee by {self.guarantee}"
            raise InputError.one("certificate", rule, guarantee)

    @model_serializer(mode="wrap")
    def _as_written(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A stored plan keeps the fields it was written with, and so its digest."""
        data: dict[str, Any] = plain(self)
        if self.schema_version == 1:
            data["noise_std"] = data.pop("mean_noise_std")
        if self._removed:
            data["spec"] = put_back(data["spec"], self._removed)
        return data

    @rule
    def _names_are_those_of_the_spec(self) -> Iterator[Fault]:
        """The groups and the rows of the certificate are of the spec's, in order."""
        names = [group.name for group in self.groups]
        names_of_spec = [group.name for group in self.spec.groups]
        listed = ", ".join(names_of_spec)
        if names != names_of_spec:
            text = f"must be those of the spec ({listed})"
            yield Fault("groups", text, ", ".join(names) or "none")
        for row in self.certificate:
            if row.group not in names_of_spec:
                yield Fault("certificate.group", f"must be one of {listed}", row.group)
        for budget in self.book or ():
            if budget.group not in names_of_spec:
                yield Fault("book.group", f"must be one of {listed}", budget.group)
            if budget.total < budget.spent:
                text = f"must be at least what was spent before, {budget.spent:.6g}"
                yield Fault(f"book.{budget.group}.total", text, budget.total)

    @rule
    def _groups_follow_from_the_spec(self) -> Iterator[Fault]:
        """What the spec says of a group is in the plan as the spec says it."""
        for group, stated in zip(self.groups, self.spec.groups, strict=False):
            where = f"groups.{group.name}"
            expected: dict[str, Any] = {
                "clients": stated.clients,
                "epsilon": stated.epsilon,
                "delta": self.spec.delta_of(stated),
                "contributions": stated.contributions,
                "sampling": stated.sampling,
                "expected_cohort": group.sampling_ratio * self.spec.drawable(stated),
            }
            if self.spec.unit == "record":
                expected |= self._parts_of_records(group, stated)
            for field, value in expected.items():
                stored = getattr(group, field)
                if not _same(stored, value):
                    if isinstance(value, float):
                        shown = f"{value:.12g}"
                    else:
                        shown = value
                    text = f"must be the spec's, {shown}"
                    yield Fault(f"{where}.{field}", text, stored)

    @rule
    def _stated_least_shares_hold(self) -> Iterator[Fault]:
        """A group whose spec states how much it counts at least counts as much."""
        population = sum(stated.clients for stated in self.spec.groups)
        for group, stated in zip(self.groups, self.spec.groups, strict=False):
            least_weight = (stated.least_share or 0.0) * stated.clients / population
            if group.weight < least_weight * (1 - _SHARE_ROUNDING):
                text = f"must be {least_weight:.6g} or more, its least share"
                yield Fault(f"groups.{group.name}.weight", text, group.weight)

    def _parts_of_records(self, group: GroupPlan, stated: Group) -> dict[str, Any]:
        """Cohort, records, batches and steps of a group whose records are protected."""
        batch = self.spec.batch_size_of(stated)
        records = stated.records or 1
        return {
            # Clients take turns, so that a round has so many of them by the ratio.
            "expected_cohort": group.sampling_ratio * stated.clients,
            "records": stated.records,
            "record_sampling_ratio": batch / records,
            # Steps of a client in a round, E_i = K ceil(N / b), with K epochs.
            "steps": (self.spec.local.epochs or 1) * math.ceil(records / batch),
        }

    @rule
    def _certificate_is_of_the_groups(self) -> Iterator[Fault]:
        """Each row has delta, relation and unit of the plan, and one row guarantees."""
        groups = {group.name: group for group in self.groups}
        for row in self.certificate:
            if row.group not in groups:
                continue
            expected = {
                "delta": groups[row.group].delta,
                "relation": self.spec.relation,
                "unit": self.spec.unit,
            }
            for field, value in expected.items():
                stored = getattr(row, field)
                if not _same(stored, value):
                    where = f"certificate.{row.group}.{row.accountant}.{field}"
                    yield Fault(where, f"must be the plan's, {value}", stored)
        if not self.certificate:
            return
        guaranteed = [row.group for row in self.certificate if row.guarantee]
        for name in groups:
            rows = guaranteed.count(name)
            if rows != 1:
                text = "must have one row that guarantees"
                yield Fault(f"certificate.{name}", text, rows)

    @rule
    def _proofs_are_of_the_certificate(self) -> Iterator[Fault]:
        """What was proven is a bound that the certificate has."""
        guarantees = {row.group: row for row in self.certificate if row.guarantee}
        for proof in self.proven or ():
            row = guarantees.get(proof.group)
            if row is None:
                text = "must be a group with a guarantee"
                yield Fault("proven.group", text, proof.group)
                continue
            epsilon = math.inf if proof.epsilon is None else proof.epsilon
            if (epsilon, proof.delta) != (row.epsilon_upper, row.delta):
                text = f"must be the certificate's, {row.epsilon_upper} at {row.delta}"
                stored = f"{proof.epsilon} at {proof.delta}"
                yield Fault(f"proven.{proof.group}.epsilon", text, stored)

    @rule
    def _noise_factors_are_those_of_the_law(self) -> Iterator[Fault]:
        """The certificate is of the law's factors, and the run releases by them."""
        law = self.spec.sampling
        if self.noise_factors is not None:
            yield from self.noise_factors.faults(law)
        elif law.law.rank_one_factors() is not None:
            yield Fault("noise_factors", f"must be there under {law} sampling", None)

    @rule
    def _fields_fit_the_unit(self) -> Iterator[Fault]:
        """Segments cover the rounds; records have fields where they are protected."""
        of_records = self.spec.unit == "record"
        text = "is only with unit: record"
        if of_records:
            text = "is required with unit: record"
        for group in self.groups:
            where = f"groups.{group.name}"
            if group.segments is not None:
                rounds = sum(segment.rounds for segment in group.segments)
                if rounds != self.spec.rounds:
                    covers = f"must cover the {self.spec.rounds} rounds"
                    yield Fault(f"{where}.segments", covers, rounds)
                if of_records:
                    yield Fault(f"{where}.segments", "is only for unit: client", rounds)
            for field in _FIELDS_OF_RECORDS:
                value = getattr(group, field)
                if of_records and value is None:
                    yield Fault(f"{where}.{field}", text, "nothing")
                elif not of_records and value is not None:
                    yield Fault(f"{where}.{field}", text, value)

    @rule
    def _clipping_leaves_noise(self) -> Iterator[Fault]:
        """Sum and count do not cost a group more than its noise multiplier."""
        if self.clipping is None or not self.groups:
            return
        # Of two releases with noise multipliers a and 2 b together: 1 / sqrt(1 / a^2 +
        # 1 / (2 b)^2), as a client moves the count by a half.
        combined = 1 / math.hypot(
            1 / self.clipping.update_noise_multiplier,
            1 / (2 * self.clipping.count_noise_multiplier),
        )
        rule_ = "must leave each group its noise multiplier; both together have"
        smallest = min(group.noise_multiplier for group in self.groups)
        for group in self.groups:
            planned = smallest
            if self.release == "joint":
                planned = group.noise_multiplier * self.clip_factor(group) * group.scale
            if combined < planned * (1 - _ROUNDING):
                text = f"{rule_} {combined:g}"
                yield Fault("clipping", text, f"{group.name}: {planned:g}")

    @property
    def digest(self) -> str:
        """Content hash of the plan; a run and its ledger are bound to it."""
        return digest(self.model_dump(mode="json"))

    @property
    def spec_digest(self) -> str:
        """Content hash of the spec alone.

        The last digits of a plan follow the processor, those of a spec do not.
        """
        return digest(self.spec.model_dump(mode="json"))

    @property
    def identity(self) -> str:
        """Which plan, whom it protects and under which relation, as tables state it."""
        relation = str(self.spec.relation)
        return identity(self.digest, self.unit, relation, self.spec.person)

    def group(self, name: str) -> GroupPlan:
        """The group of that name."""
        return Named(self.groups)[name]

    @property
    def unit(self) -> Unit:
        """Whom the budgets protect."""
        return self.spec.unit

    def whom(self, group: GroupPlan | None = None) -> str:
        """Whom a budget protects, as a word.

        Args:
            group: whose budget; any whose clients are people of their own when None.
        """
        contributions = 1 if group is None else group.contributions
        return named_unit(self.unit, self.spec.person, contributions)

    def law_of(self, group: GroupPlan) -> SamplingLaw:
        """The law by which a group is sampled, for persons with its contributions."""
        law = group.sampling or self.spec.sampling
        return law.of_person(group.contributions, self.unit)

    def clip_factor(self, group: GroupPlan) -> float:
        """The group's own clipping norm over the spec's; 1 where it has none."""
        if group.clipping_norm is None:
            return 1.0
        return group.clipping_norm / self.spec.clipping_norm

    def clip_bound(self, group: GroupPlan) -> float:
        """The most, in L2 norm, that a client of the group adds to a released sum.

        The noise multiplier that the group faces is the standard deviation of the noise
        on that sum over this bound: ``noise_std = noise_multiplier *
        clip_bound(group)``. Where the norm follows a quantile, the bound is over the
        norm of the round.
        """
        if self.clipping is not None:
            return self.clipping.bound * self.clip_factor(group) * group.scale
        return (group.clipping_norm or self.spec.clipping_norm) * group.scale

    def at_round(self, group: GroupPlan, round_: int) -> tuple[float, float]:
        """Sampling ratio of a group's clients and their noise multiplier in a round.

        Args:
            group: of the plan.
            round_: from 1.

        Raises:
            InputError: for a round that is not planned.
        """
        if not 1 <= round_ <= self.spec.rounds:
            raise InputError.one("round", f"must be in [1, {self.spec.rounds}]", round_)
        last_round = 0
        for segment in group.segments or ():
            last_round += segment.rounds
            if round_ <= last_round:
                return segment.sampling_ratio, segment.noise_multiplier
        return group.sampling_ratio, group.noise_multiplier

    @called_first
    def history(self, group: GroupPlan | str) -> History:
        """What the unit that a group's budget protects will have been part of.

        >>> plan.history("strict").rounds
        2

        A client: one release per round, by segments where the rounds differ. A record
        of a client: one release per noisy step in each round that the client takes part
        in, with the record's own chance to be in a batch; that the clients take turns
        is not random and amplifies nothing.
        """
        if not isinstance(group, GroupPlan):
            group = self.group(str(group))
        law = self.law_of(group)
        noise_multiplier = group.noise_multiplier
        if group.releases is not None:
            ratio = group.record_sampling_ratio or 1.0
            release = Release(noise_multiplier, ratio, law)
            return History.repeated(release, group.releases)
        if group.segments is not None:
            return History(
                (
                    Release(segment.noise_multiplier, segment.sampling_ratio, law),
                    segment.rounds,
                )
                for segment in group.segments
            )
        release = Release(noise_multiplier, group.sampling_ratio, law)
        return History.repeated(release, law.law.rounds_of_client(self.spec.rounds))

    def explain(self) -> str:
        """What each group gets, pays and gains, in sentences.

        >>> print(plan.explain())
        each client of strict is protected by epsilon at most ...
        """
        return "\n".join(presenter().explanation(self))

    def to_json(self) -> str:
        """The text of ``plan.json``: the plan and its digest."""
        data = {**self.model_dump(mode="json"), "digest": self.digest}
        return json.dumps(data, indent=1, allow_nan=False) + "\n"

    def save(self, path: Path | str) -> None:
        """Write ``plan.json``."""
        write_text(path, self.to_json())

    @classmethod
    def parse(cls, data: Any) -> Plan:
        """A plan from plain data, refused when it is not what the planner wrote.

        Raises:
            InputError: naming the first group whose numbers left its certificate, or
                the digest, or what the data are instead of a plan.
        """
        if not isinstance(data, dict):
            rule = "must be a mapping of fields"
            raise InputError.one("plan", rule, type(data).__name__)
        refuse_other_kind(data, PLAN, "plan")
        stored_digest = data.get("digest")
        content = {key: value for key, value in data.items() if key != "digest"}
        plan = cls.of_content(content)
        if stored_digest != plan.digest:
            rule = "must be the hash of the plan, which was edited by hand"
            raise InputError.one("plan.digest", rule, stored_digest)
        return plan

    @classmethod
    def of_content(cls, data: dict[str, Any]) -> Plan:
        """A plan from plain data without their digest, which nothing compares."""
        if data.get("schema_version") == 1 and "noise_std" in data:
            data = {**data, "mean_noise_std": data["noise_std"]}
            del data["noise_std"]
        spec, removed = set_aside(data.get("spec"))
        plan = parse(cls, {**data, "spec": spec} if removed else data)
        plan._removed = removed
        return plan

    @classmethod
    @checked_call
    def load(cls, path: Any) -> Plan:
        """Read ``plan.json``, or that of a run folder; a plan is returned as it is.

        Raises:
            InputError: when it cannot be read, is not JSON, has faults, or was edited,
                or when its certificate is not what its releases cost.
        """
        if isinstance(path, Plan):
            return path
        if not isinstance(path, Path | str):
            rule = (
                "must be a plan, such as privplan.solve(spec), or the path of its file"
            )
            raise InputError.one("plan", rule, type(path).__name__)
        if Path(path).is_dir():
            path = Path(path) / "plan.json"
        text = read_text(path, "plan")
        try:
            data = load_json(text)
        except ValueError:
            raise InputError.one("plan", "must be JSON", str(path)) from None
        plan = cls.parse(data)
        plan._refuse_other_weights()
        return require_certified(plan)

    def _refuse_other_weights(self) -> None:
        """Refuse weights that are not those of the groups' scales in their one sum.

        Raises:
            InputError: with every such group.
        """
        if self.release != "joint" or self.unit == "record":
            return
        parts = [group.scale * group.expected_cohort for group in self.groups]
        faults = []
        for group, part in zip(self.groups, parts, strict=True):
            weight = part / sum(parts)
            if not math.isclose(group.weight, weight, abs_tol=_SHARE_ROUNDING):
                text = f"must be what its scale gives it in the sum, {weight:.6g}"
                faults.append(Fault(f"groups.{group.name}.weight", text, group.weight))
        if faults:
            raise InputError(faults)
