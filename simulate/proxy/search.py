"""Search of a recipe on proxy data: Optuna's samplers, and rungs of growing cohorts.

A trial is a recipe. It trains with a small share of the plan's cohort, and if it is among the
better third so far with a larger one, then with the whole cohort and several seeds, each for all
rounds (successive halving). The recipe before is the first trial and passes all rungs, so that
the result is compared with it. Where shifts of images are tried, the next trials are that recipe
with each of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from privplan.errors import InputError, PrivplanError
from privplan.files import Convert, edited, load_yaml
from privplan.forecast.features import Coverage, ProxyRun, ProxyTable, client_shares, plan_features
from privplan.plan import Plan
from privplan.planning.choices import relative_noise
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.spec.training import TUNED, fields_digest, without_recipe
from privplan.sweeps import Journal, Progress, finish, in_jobs, key_of, resumable
from privplan.values import Count, Fraction, Positive, Value, digest, parse
from simulate.algorithms.registry import ALGORITHMS, as_given, no_server
from simulate.engine.evaluation import by_group
from simulate.engine.experiment import Experiment
from simulate.proxy.pretraining import Pretrained, with_initial
from simulate.proxy.trials import (
    DECAYS,
    FACTORS,
    Candidate,
    Setting,
    Trial,
    accuracy,
    default_candidate,
    loaded,
    shifts_of,
    smaller,
    space,
    trained,
)
from simulate.runs.study import Study, opened, search

PLANNED = "planned"
"""The algorithm whose plans say that their recipe was tuned."""
STORAGE = "study.db"
SHARES = (1 / 8, 1 / 3, 1.0)
"""Shares of the plan's cohort in the rungs."""
FINAL_SEEDS = 2
"""Seeds of the last rung."""
STARTUP = 8
"""Recipes that are drawn at random before the estimator proposes any."""


class Evidence(Value):
    """Runs that a tuned recipe rests on, written beside the spec.

    Attributes:
        dataset: name of the proxy data.
        partition: partition of its records over clients.
        algorithm: name of the algorithm that was trained.
        runs: simulated runs.
        seed: seed of the first run.
        accuracy: mean accuracy of the recipe over its seeds, in [0, 1].
        seeds: number of seeds of this mean.
        default_accuracy: the same of the recipe before.
        rounds: rounds of the plan that was tuned for.
        noise: norm of the noise of its mean update over the clipping norm.
        model: name of the model that was trained.
        recipe: digest of the recipe's fields (``fields_digest``).
        trials: values, seeds' accuracies and number of the trials of the last rung, best first.
    """

    dataset: str
    partition: str
    algorithm: str
    runs: int
    seed: int
    accuracy: float
    seeds: int
    default_accuracy: float
    rounds: int
    noise: float
    model: str
    recipe: str
    trials: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Ranked:
    """A recipe of the last rung with its accuracies, one per seed, in [0, 1]."""

    recipe: Candidate
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean accuracy."""
        return fmean(self.scores)

    @property
    def sd(self) -> float:
        """Standard deviation over seeds."""
        return stdev(self.scores)


@dataclass(frozen=True)
class Found:
    """Result of a search: the last rung from the best recipe down, and what it rests on."""

    ranked: tuple[Ranked, ...]
    default: Ranked
    evidence: Evidence
    warnings: tuple[str, ...]

    @property
    def best(self) -> Ranked:
        """The best recipe; the default one unless another is better."""
        return self.ranked[0]


class Search:
    """A search of a recipe for a spec.

    Args:
        setting: the spec, the algorithm and the proxy data.
        trials: recipes to try, at least 4.
        seed: seed of the recipes that are proposed, and first seed of the runs.
        jobs: processes.
        folder: where the trials are stored; None when they are not.
        minutes: no further recipes begin when so many minutes are over; None for no limit.
        shifts: whether random shifts of images are tried, too.
        sampler: one of ``simulate.runs.study.SAMPLERS``.
    """

    def __init__(
        self,
        setting: Setting,
        trials: int,
        seed: int = 0,
        jobs: int = 1,
        folder: Path | None = None,
        minutes: float | None = None,
        *,
        shifts: bool = False,
        sampler: str = "tpe",
    ) -> None:
        self._setting, self._trials, self._seed, self._jobs = setting, trials, seed, jobs
        self._folder, self._minutes, self._sampler = folder, minutes, sampler
        self._shifts = shifts_of(loaded(setting)) if shifts else ()
        if shifts and not self._shifts:
            raise InputError.one("shifts", "is only for images", setting.dataset)
        self._plan = solve(Spec.parse(setting.spec), second_opinion=False)
        entry = ALGORITHMS.get(setting.algorithm)
        own_server = no_server in entry.requires
        if own_server and (fault := no_server(self._plan)):
            rule = f"{fault.rule} for {setting.algorithm}, which has its own"
            raise InputError.one(fault.field.removeprefix("plan."), rule, fault.found)
        before = self._plan
        if entry.plan is not as_given:
            # A method that plans for itself trains without the plan's recipe, so the search begins
            # there too: steps that are meant for clipped updates would let it diverge.
            plain = without_recipe(self._plan.spec.model_dump(mode="json"))
            before = solve(Spec.parse(plain), second_opinion=False)
        self._default = default_candidate(before, own_server=own_server)

    def run(self, progress: Progress = lambda done, total: None) -> Found:
        """The recipes of the last rung."""
        loaded(self._setting)  # missing data are refused before anything is written
        varied = space(self._default, self._shifts)
        moved = [self._default.model_copy(update={"shift": one}) for one in self._shifts]
        first = [
            {name: getattr(one, name) for name in varied}
            for one in dict.fromkeys([self._default, *moved])
        ]
        shares = [1.0 if smaller(self._plan, one) == self._plan else one for one in SHARES]
        seeds = [(self._seed,), (self._seed,), range(self._seed, self._seed + FINAL_SEEDS)]
        rungs = [
            [f"{share:.4g}, seed {seed}" for seed in own]
            for share, own in zip(shares, seeds, strict=True)
        ]
        trials = {
            key: (share, seed)
            for share, own, keys in zip(shares, seeds, rungs, strict=True)
            for seed, key in zip(own, keys, strict=True)
        }

        def task(name: str, key: str, params: dict[str, Any]) -> tuple[Setting, Trial]:
            share, seed = trials[key]
            recipe = Candidate(**{**self._default.model_dump(), **params})
            return self._setting, Trial(recipe=recipe, share=share, seed=seed)

        setting = self._setting.model_dump(mode="json", exclude={"data_dir"})
        identity = digest({"setting": setting, "seed": self._seed, "shifts": list(self._shifts),
                           "sampler": self._sampler})  # fmt: skip
        path = None if self._folder is None else self._folder / STORAGE
        with resumable(self._folder), opened(path) as storage:
            study = Study(
                storage, "recipe", identity, varied, first, rungs,
                seed=self._seed, startup=STARTUP, sampler=self._sampler,
            )  # fmt: skip
            seconds = None if self._minutes is None else 60 * self._minutes
            search(
                {"recipe": study}, task, accuracy,
                trials=self._trials, jobs=self._jobs, progress=progress, seconds=seconds,
            )  # fmt: skip
            last = [
                Ranked(task("", rungs[0][0], one.params)[1].recipe, one.scores)
                for one in study.finished()
                if one.scores is not None
            ]
            return self._found(last, study.runs)

    def _found(self, last: list[Ranked], runs: int) -> Found:
        """The result, from the trials of the last rung; the first is the recipe before."""
        default, ranked = last[0], tuple(sorted(last, key=lambda one: -one.mean))
        best = ranked[0]
        trained = Spec.parse(best.recipe.applied(self._setting.spec))
        evidence = Evidence(
            dataset=self._setting.dataset,
            partition=self._setting.partition,
            algorithm=self._setting.algorithm,
            runs=runs,
            seed=self._seed,
            accuracy=best.mean,
            seeds=FINAL_SEEDS,
            default_accuracy=default.mean,
            rounds=self._plan.spec.rounds,
            noise=relative_noise(self._plan),
            model=trained.model.name,
            recipe=fields_digest(trained.model_dump(mode="json")),
            trials=tuple({**one.recipe.numbers(), "scores": one.scores} for one in ranked),
        )
        return Found(ranked, default, evidence, tuple(self._warnings(best, default)))

    def _warnings(self, best: Ranked, default: Ranked) -> list[str]:
        """What a reader of the result should know."""
        if best is default:
            return ["no recipe was better than the one before, which is kept"]
        lines, error = [], math.hypot(best.sd, default.sd) / math.sqrt(FINAL_SEEDS)
        if best.mean - default.mean < 2 * error:
            lines.append(
                f"{100 * (best.mean - default.mean):+.2f} points over the recipe before are within "
                f"twice the standard error, {100 * error:.2f}"
            )
        if self._setting.algorithm != PLANNED:
            lines.append(
                f"the fields are those for {self._setting.algorithm}; while they stand in the "
                f"spec, {PLANNED} trains with them, too, not with its default recipe"
            )
        for name, factor in FACTORS.items():
            value, middle = getattr(best.recipe, name), getattr(self._default, name)
            if abs(math.log(value / middle)) > 0.9 * math.log(factor):
                lines.append(
                    f"{name} {value:g} is at the edge of what was tried, [{middle / factor:.3g}, "
                    f"{middle * factor:.3g}]: the best one may lie beyond"
                )
        return lines


# -------------------------------------------------------------------------------------------------
# Runs of plans around a spec's on proxy data: the table that forecasts are made from; resumable.
#
# Plans differ in budgets, rounds, cohort, training recipe and partition, drawn at random by a
# seed. Each is trained for all its rounds with its noise and a share of its cohort, as in tuning.

PROXY_JOURNAL = "proxy.jsonl"
DRAWN = "random"
"""Instead of a partition: every run draws its own, so that forecasts know all kinds of coverage."""
_ALPHAS = (0.15, 3.0)
"""Range of the parameter of Dirichlet partitions that are drawn."""
_IID, _DIRICHLET = 0.2, 0.2
"""Shares of IID and Dirichlet among drawn partitions; in the others a group alone holds classes."""


class Variation(Value):
    """A plan around a spec's.

    Attributes:
        epsilons: factor on the epsilon of each group.
        rounds: number of rounds.
        cohort: factor on the clients per round.
        clip: factor on the clipping norm.
        step: factor on the length of the server's step.
        decay: decay of the average of the models; None for the plan's own recipe.
        partition: partition of the records over the clients.
        seed: seed of the run.
        share: share of the plan's cohort that takes part.
    """

    epsilons: tuple[Positive, ...]
    rounds: Count
    cohort: Positive = 1.0
    clip: Positive = 1.0
    step: Positive = 1.0
    decay: float | None = None
    partition: str
    seed: int
    share: Fraction


def variations(
    spec: Spec, partitions: Sequence[str], count: int, seed: int, share: float, classes: int = 10
) -> list[Variation]:
    """Random plans around a spec's; every second one has a recipe of its own."""
    spec.sampling.law.require("forecasts", "sampling")
    source, drawn = np.random.default_rng([seed, 13]), []

    def factor(most: float) -> float:
        return float(f"{most ** source.uniform(-1, 1):.4g}")

    for number in range(count):
        common = factor(5.0)
        epsilons = tuple(float(f"{common * factor(2.5):.4g}") for _ in spec.groups)
        recipe: dict[str, Any] = {"clip": factor(4.0), "step": factor(2.5)}
        recipe["decay"] = float(source.choice(DECAYS))
        rounds, cohort = max(2, round(spec.rounds * factor(3.0))), factor(2.0)
        own, held = source.random() < 0.5, drawn_partition(source, spec, classes)
        named = partitions[number % len(partitions)]
        drawn.append(
            Variation(
                epsilons=epsilons,
                rounds=rounds,
                cohort=cohort if _cohort_is_free(spec) else 1.0,
                partition=held if named == DRAWN else named,
                seed=seed + number,
                share=share,
                **(recipe if own else {}),
            )
        )
    return drawn


def drawn_partition(source: np.random.Generator, spec: Spec, classes: int) -> str:
    """A random partition: IID, Dirichlet, or one group alone holds up to half of the classes."""
    kind, alpha = source.random(), float(np.exp(source.uniform(*np.log(_ALPHAS))))
    group = spec.groups[int(source.integers(len(spec.groups)))].name
    number = int(source.integers(1, max(2, classes // 2 + 1)))
    labels = ",".join(map(str, sorted(source.permutation(classes)[:number].tolist())))
    if kind < _IID or (kind >= _IID + _DIRICHLET and len(spec.groups) == 1):
        return "iid"
    return f"dirichlet:{alpha:.2g}" if kind < _IID + _DIRICHLET else f"by-class:{group}={labels}"


def _cohort_is_free(spec: Spec) -> bool:
    """Whether plans of other cohorts can be around a spec's."""
    law = spec.sampling.law
    return spec.cohort is not None and not law.everyone and spec.planning.ratios != "given"


def varied(data: dict[str, Any], one: Variation) -> Plan:
    """The plan of a variation of a spec's plain data."""
    groups = [
        {**group, "epsilon": float(f"{group['epsilon'] * factor:.6g}")}
        for group, factor in zip(data["groups"], one.epsilons, strict=True)
    ]
    changed = {**data, "groups": groups, "rounds": one.rounds}
    if one.cohort != 1:
        population = sum(group["clients"] for group in groups)
        cohort = min(max(round(data["cohort"] * one.cohort), len(groups)), population)
        changed["cohort"] = float(cohort)
    plan = solve(Spec.parse(changed), second_opinion=False)
    if one.decay is None:
        return plan
    known = default_candidate(plan)
    own: dict[str, Any] = {
        **known.model_dump(),
        "clipping_norm": known.clipping_norm * one.clip,
        "step": known.step * one.step,
        "decay": one.decay,
    }
    return solve(Spec.parse(Candidate(**own).applied(changed)), second_opinion=False)


def proxy_run(task: tuple[Setting, Variation]) -> dict[str, Any]:
    """Trains one variation; returns the plain data of its ``ProxyRun``."""
    setting, one = task
    plan = varied(setting.spec, one)
    held = setting.model_copy(update={"partition": one.partition})
    experiment, measured = trained(held, plan, one.share, one.seed)
    shares = experiment.label_shares()
    accuracies = by_group(measured, shares)
    features = plan_features(plan)
    if features.clients is not None:
        features = features.model_copy(update={"clients": features.clients * one.share})
    by_class = measured.by_class
    return ProxyRun(
        plan=features,
        coverage=Coverage(
            shares=tuple(tuple(shares[group.name].tolist()) for group in plan.groups),
            clients=client_shares(plan.spec),
            skew=label_skew(experiment),
            frequency=tuple(label_frequency(experiment).tolist()),
        ),
        partition=one.partition,
        seed=one.seed,
        accuracy=measured.accuracy,
        accuracy_by_group=tuple(accuracies[group.name] for group in plan.groups),
        accuracy_by_class=None if np.isnan(by_class).any() else tuple(by_class.tolist()),
    ).model_dump(mode="json")


def label_frequency(experiment: Experiment) -> np.ndarray:
    """Share of each class among all training records [classes]."""
    labels = experiment.data.train_labels.numpy()
    counts = np.bincount(labels, minlength=len(experiment.data.classes))
    shares: np.ndarray = counts / counts.sum()
    return shares


def label_skew(experiment: Experiment) -> float:
    """Skew of the clients' labels within their groups, as in ``Coverage``; at least 0.

    From pairs of different records of a client, so that few records per client add no bias.
    """
    labels, partition = experiment.data.train_labels.numpy(), experiment.partition
    classes, excess, pairs = len(experiment.data.classes), 0.0, 0.0
    for members in partition.members:
        alike = float((partition.label_distribution(members, labels, classes) ** 2).sum())
        for client in members:
            counts = np.bincount(labels[partition.records(int(client))], minlength=classes)
            number = counts.sum()
            if number > 1 and alike < 1:
                same = float((counts * (counts - 1)).sum() / (number * (number - 1)))
                excess += (same - alike) / (1 - alike)
                pairs += 1
    return min(max(excess / pairs, 0.0), 1.0) if pairs else 0.0


def proxy_table(
    setting: Setting,
    todo: Sequence[Variation],
    folder: Path | None = None,
    jobs: int = 1,
    progress: Progress = lambda done, total: None,
) -> ProxyTable:
    """Trains all variations that are not in the folder's journal; returns their table."""
    identity = setting.model_dump(mode="json", exclude={"data_dir"})
    journal: Journal[dict[str, Any]] | None = None
    if folder is not None:
        journal = Journal(folder / PROXY_JOURNAL, digest(identity), _check_proxy)
        journal.load()  # another sweep is refused before the lock is created
    items = {key_of(one.model_dump(mode="json")): (setting, one) for one in todo}
    with resumable(folder):
        spread = in_jobs(min(jobs, len(items)))
        done = finish(items, proxy_run, spread=spread, journal=journal, progress=progress)
    runs = tuple(parse(ProxyRun, done[key]) for key in items)
    return ProxyTable(
        dataset=setting.dataset,
        model=str(setting.spec["model"]["name"]),
        classes=len(runs[0].coverage.shares[0]),
        share=todo[0].share,
        runs=runs,
    )


def _check_proxy(point: Any, result: Any) -> None:
    """Check that a line of a journal can be a run's."""
    try:
        parse(ProxyRun, result)
    except PrivplanError:
        raise ValueError from None
    if set(point) != {*Variation.model_fields}:
        raise ValueError


# --- The text of a spec with what tuning or pretraining found; comments stay where they can. -----


def tuned_data(data: dict[str, Any], found: Found, algorithm: str) -> dict[str, Any]:
    """A spec's plain data with the best recipe.

    For ``planned`` the recipe is marked as tuned, with the values before, which baselines train
    with; for another algorithm its fields stand as given. Where it trains best with the fields of
    before, they stay, so that ``planned`` keeps its recipe.
    """
    best = found.best.recipe
    if algorithm != PLANNED and found.best is found.default:
        return data
    fields = {key: value for key, value in best.fields().items() if value is not None}
    fields["local"] = best.local(data)
    fields["recipe"] = {"source": "none"}
    if algorithm == PLANNED:
        decided = [key for key in TUNED if key in fields]
        fields["recipe"] = {
            "source": "tuned",
            "decides": decided,
            "replaced": {key: data[key] for key in decided if data.get(key) is not None},
        }
    rest = {key: value for key, value in data.items() if key not in (*TUNED, "recipe")}
    return {**rest, **fields}


def tuned_text(text: str, found: Found, algorithm: str, evidence: str) -> str:
    """The text of a spec with the best recipe."""
    basis = found.evidence

    def row(one: Ranked) -> str:
        recipe = " ".join(f"{name}={value}" for name, value in one.recipe.numbers().items())
        return f"{100 * one.mean:.2f} +- {100 * one.sd:.2f}: {recipe}"

    rows = [
        f"Tuned for {algorithm} by {basis.runs} simulated runs on {basis.dataset} "
        f"({basis.partition}): public or proxy data only.",
        f"It holds at {basis.rounds} rounds and noise {basis.noise:.3g} in clipping norms; "
        f"more in {evidence}.",
        f"The last runs, accuracy in percent over {basis.seeds} seeds; best first, then as before:",
        *map(row, (*found.ranked[:3], found.default)),
    ]
    data = load_yaml(text, "spec")
    return _with_fields(text, data, tuned_data(data, found, algorithm), rows)


def pretrained_text(text: str, found: Pretrained) -> str:
    """The text of a spec with initial parameters; as it was where they are not kept."""
    rows = ["Initial parameters: public or proxy data only."]
    if found.warm:
        warm, cold = (100 * fmean(scores) for scores in (found.warm, found.cold))
        rows += [
            "On classes of the public data that they were not trained on, mean accuracy of "
            f"{len(found.warm)} seeds in percent:",
            f"{warm:.2f}, from random parameters {cold:.2f}; standard error of the gain "
            f"{100 * found.error:.2f}.",
        ]
    data = load_yaml(text, "spec")
    if found.initial is None:
        return _with_fields(text, data, data, [*rows, "So they are not used."])
    return _with_fields(text, data, with_initial(data, found.initial), rows)


def _with_fields(
    text: str, data: dict[str, Any], wanted: dict[str, Any], comments: Sequence[str]
) -> str:
    """The text with other values of some top-level fields, at its end after the comments."""
    own = [key for key in wanted if key not in data or wanted[key] != data[key]]
    if not own and wanted == data:
        return "".join(f"# {line}\n" for line in comments) + text

    def edit(content: Any, convert: Convert) -> None:
        for key in data:
            if key not in wanted or key in own:
                del content[key]
        for key in own:
            content[key] = convert(wanted[key])
        content.yaml_set_comment_before_after_key(own[0], before="\n" + "\n".join(comments))

    return edited(text, edit, wanted, "spec").rstrip() + "\n"
