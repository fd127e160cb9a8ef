"""Search of a recipe on proxy data: successive halving with a surrogate, resumable.

Rungs of growing cohorts: all recipes train with a small share of the plan's cohort, the better
third with a larger one, the best with the whole cohort and several seeds, each for all rounds. A
Gaussian process over the recipes' coordinates, fitted to the first rung, adds recipes to it. The
default recipe takes part in the last rung, so that the result is compared with it. Where shifts of
images are tried, the first rung has the default recipe with each of them, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import yaml

from privplan.errors import InputError, PrivplanError
from privplan.files import load_yaml
from privplan.forecast.features import Coverage, ProxyRun, ProxyTable, client_shares, plan_features
from privplan.plan import Plan
from privplan.planning.choices import relative_noise
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.spec.training import TUNED, TuningEvidence, fields_digest, without_recipe
from privplan.spec.turns import refuse_turns
from privplan.sweeps import Journal, Progress, finish, in_jobs, key_of, resumable
from privplan.values import Count, Fraction, Positive, Value, digest, parse
from simulate.algorithms.registry import ALGORITHMS, as_given, no_server
from simulate.engine.evaluation import by_group
from simulate.engine.experiment import Experiment
from simulate.proxy.pretraining import Pretrained, with_initial
from simulate.proxy.trials import (
    DECAYS,
    Candidate,
    Setting,
    Trial,
    accuracy,
    default_candidate,
    draws,
    loaded,
    shifts_of,
    smaller,
    trained,
)

PLANNED = "planned"
"""The algorithm whose plans say that their recipe was tuned."""
JOURNAL = "trials.jsonl"
SHARES = (1 / 8, 1 / 3, 1.0)
"""Shares of the plan's cohort in the rungs."""
KEPT = 3
"""Of so many recipes one goes on to the next rung."""
FINAL_SEEDS = 2
"""Seeds of the last rung."""
FINALISTS = 3
"""Recipes of the last rung, beside the default recipe."""
POOL = 1000
"""Recipes among which the surrogate chooses."""


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
        """Standard deviation over seeds; 0 with one seed."""
        return stdev(self.scores) if len(self.scores) > 1 else 0.0


@dataclass(frozen=True)
class Found:
    """Result of a search: the last rung from the best recipe down, and what it rests on."""

    ranked: tuple[Ranked, ...]
    default: Ranked
    evidence: TuningEvidence
    warnings: tuple[str, ...]

    @property
    def best(self) -> Ranked:
        """The best recipe; the default one unless another is better."""
        return self.ranked[0]


class Search:
    """A search of a recipe for a spec.

    Args:
        setting: the spec, the algorithm and the proxy data.
        trials: recipes of the first rung, at least 4; a quarter of them by the surrogate.
        minutes: the last rungs begin when so many minutes are over; None for no limit.
        shifts: whether random shifts of images are tried, too.
        seed: seed of the recipes that are drawn, and first seed of the runs.
        jobs: processes.
        folder: where the trials are journalled; None when they are not.
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
    ) -> None:
        self._setting, self._trials, self._seed, self._jobs = setting, trials, seed, jobs
        self._folder, self._minutes = folder, minutes
        self._shifts = shifts_of(loaded(setting)) if shifts else ()
        if shifts and not self._shifts:
            raise InputError.one("shifts", "is only for images", setting.dataset)
        self._plan = solve(Spec.parse(setting.spec), second_opinion=False)
        own_server = no_server in ALGORITHMS.get(setting.algorithm).requires
        if own_server and (fault := no_server(self._plan)):
            rule = f"{fault.rule} for {setting.algorithm}, which has its own"
            raise InputError.one(fault.field.removeprefix("plan."), rule, fault.found)
        self._default = default_candidate(self._before(), own_server=own_server)
        identity = {"setting": setting.model_dump(mode="json", exclude={"data_dir"}), "seed": seed}
        self._journal: Journal[float] | None = None
        if folder is not None:
            self._journal = Journal(folder / JOURNAL, digest(identity), _check)
        self._runs = 0

    def _before(self) -> Plan:
        """The plan whose recipe the search begins with.

        A method that plans for itself trains without the plan's recipe, so it begins there too:
        steps that are meant for clipped updates would let it diverge.
        """
        if ALGORITHMS.get(self._setting.algorithm).plan is as_given:
            return self._plan
        spec = Spec.parse(without_recipe(self._plan.spec.model_dump(mode="json")))
        return solve(spec, second_opinion=False)

    def run(self, progress: Progress = lambda done, total: None) -> Found:
        """The recipes of the last rung.

        Args:
            progress: called with the number of finished and of all trials of each rung.

        Raises:
            InterruptedSweepError: on Ctrl-C; the same call resumes.
            PrivplanError: when the spec does not fit the proxy data.
        """
        if self._journal is not None:
            self._journal.load()  # another search is refused before the lock is created
        with resumable(self._folder):
            return self._search(progress)

    def _search(self, progress: Progress) -> Found:
        source, begin = np.random.default_rng(self._seed), time.monotonic()
        drawn = max(3, self._trials - self._trials // 4)
        endless = draws(self._default, source, self._shifts)
        moved = [self._default.model_copy(update={"shift": shift}) for shift in self._shifts]
        first = dict.fromkeys([self._default, *moved])
        recipes = [*first, *islice(endless, max(1, drawn - len(first)))]
        scores = self._rung(recipes, SHARES[0], 1, progress)
        limit = math.inf if self._minutes is None else 60 * self._minutes
        if time.monotonic() - begin < 0.4 * limit and self._trials >= 8:
            pool = list(islice(endless, POOL))
            added = propose(recipes, [one.mean for one in scores], pool, self._trials // 4)
            scores += self._rung(added, SHARES[0], 1, progress)
        middle = sorted(scores, key=_rank)[: max(FINALISTS, len(scores) // KEPT)]
        if time.monotonic() - begin < 0.7 * limit:
            middle = self._rung([one.recipe for one in middle], SHARES[1], 1, progress)
        best = [one.recipe for one in sorted(middle, key=_rank)[:FINALISTS]]
        last = self._rung([self._default, *best], SHARES[2], FINAL_SEEDS, progress)
        [default] = [one for one in last if one.recipe == self._default]
        ranked = tuple(sorted(last, key=_rank))
        algorithm = self._setting.algorithm
        trained = Spec.parse(ranked[0].recipe.applied(self._setting.spec))
        evidence = TuningEvidence(
            dataset=self._setting.dataset,
            partition=self._setting.partition,
            runs=self._runs,
            seed=self._seed,
            accuracy=ranked[0].mean,
            seeds=FINAL_SEEDS,
            default_accuracy=default.mean,
            rounds=self._plan.spec.rounds,
            noise=relative_noise(self._plan),
            model=trained.model.name,
            recipe=fields_digest(trained.model_dump(mode="json")),
            algorithm=None if algorithm == PLANNED else algorithm,
        )
        return Found(ranked, default, evidence, tuple(self._warnings(ranked, default)))

    def _rung(
        self, recipes: Sequence[Candidate], share: float, seeds: int, progress: Progress
    ) -> list[Ranked]:
        """Scores of recipes at a share of the cohort, each once."""
        recipes = list(dict.fromkeys(recipes))
        if smaller(self._plan, share) == self._plan:
            share = 1.0
        items = {
            key_of(trial.model_dump()): (self._setting, trial)
            for recipe in recipes
            for trial in _trials(recipe, share, self._seed, seeds)
        }
        spread = in_jobs(min(self._jobs, len(items)))
        done = finish(items, accuracy, spread=spread, journal=self._journal, progress=progress)
        self._runs += len(items)
        return [
            Ranked(
                recipe,
                tuple(
                    done[key_of(trial.model_dump())]
                    for trial in _trials(recipe, share, self._seed, seeds)
                ),
            )
            for recipe in recipes
        ]

    def _warnings(self, ranked: Sequence[Ranked], default: Ranked) -> list[str]:
        """What a reader of the result should know."""
        lines, best, first = [], ranked[0], self._default
        error = math.hypot(best.sd, default.sd) / math.sqrt(FINAL_SEEDS)
        if best is default:
            lines.append("no recipe was better than the one before, which is kept")
        else:
            gain = 100 * (best.mean - default.mean)
            if best.mean - default.mean < 2 * error:
                lines.append(
                    f"{gain:+.2f} points over the recipe before are within twice the standard "
                    f"error, {100 * error:.2f}"
                )
            if self._setting.algorithm != PLANNED:
                lines.append(
                    f"the fields are those for {self._setting.algorithm}; while they stand in the "
                    f"spec, {PLANNED} trains with them, too, not with its default recipe"
                )
        for name, factor in (("clipping_norm", 4.0), ("step", 2.5), ("local_rate", 2.0)):
            value, middle = getattr(best.recipe, name), getattr(first, name)
            if abs(math.log(value / middle)) > 0.9 * math.log(factor):
                lines.append(
                    f"{name} {value:g} is at the edge of what was tried, [{middle / factor:.3g}, "
                    f"{middle * factor:.3g}]: the best one may lie beyond"
                )
        return lines


def propose(
    tried: Sequence[Candidate], scores: Sequence[float], pool: Sequence[Candidate], count: int
) -> list[Candidate]:
    """Recipes of a pool by the upper confidence bound of a Gaussian process.

    Args:
        tried: recipes that were tried.
        scores: their accuracies.
        pool: recipes to choose from.
        count: how many.
    """
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import Matern, WhiteKernel

    x, y = np.array([one.features() for one in tried]), np.array(scores)
    middle, scale = x.mean(0), x.std(0) + 1e-9
    kernel = Matern(length_scale=2.0, length_scale_bounds="fixed", nu=2.5) + WhiteKernel(
        0.05, noise_level_bounds="fixed"
    )
    process = GaussianProcessRegressor(kernel, optimizer=None, normalize_y=True)
    process.fit((x - middle) / scale, y)
    features = np.array([one.features() for one in pool])
    mean, deviation = process.predict((features - middle) / scale, return_std=True)
    order = np.argsort(-(mean + 0.5 * deviation), kind="stable")
    return [pool[int(at)] for at in order[:count]]


def _trials(recipe: Candidate, share: float, seed: int, seeds: int) -> list[Trial]:
    return [Trial(recipe=recipe, share=share, seed=seed + one) for one in range(seeds)]


def _rank(one: Ranked) -> float:
    """Sort key, the best first."""
    return -one.mean


def _check(point: Any, result: Any) -> None:
    """Check that a line of a journal can be a trial's.

    Raises:
        ValueError: when it cannot.
    """
    if not isinstance(result, float) or not 0 <= result <= 1 or set(point) != {*Trial.model_fields}:
        raise ValueError


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
    """Random plans around a spec's; every second one has a recipe of its own.

    Args:
        spec: the spec.
        partitions: partitions to go through, or DRAWN.
        count: how many.
        seed: seed of the draw; the runs have the seeds from ``seed`` on.
        share: share of the plans' cohorts that takes part.
        classes: classes of the data, for partitions that are drawn.

    Raises:
        InputError: for a spec whose clients take turns.
    """
    refuse_turns(spec.sampling, "sampling", "forecasts")
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
    """Trains one variation; returns the plain data of its ``ProxyRun``.

    Raises:
        PrivplanError: when the spec does not fit the data.
    """
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
    """Trains all variations that are not in the folder's journal; returns their table.

    Args:
        setting: the spec, whose groups are listed, and the proxy data.
        todo: the plans to train.
        folder: where runs are journalled; None when they are not.
        jobs: processes.
        progress: called with the number of finished and of all runs.

    Raises:
        InterruptedSweepError: on Ctrl-C; the same call resumes.
        PrivplanError: when the spec does not fit the proxy data.
    """
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
    """Check that a line of a journal can be a run's.

    Raises:
        ValueError: when it cannot.
    """
    try:
        parse(ProxyRun, result)
    except PrivplanError:
        raise ValueError from None
    if set(point) != {*Variation.model_fields}:
        raise ValueError


# --- The text of a spec with what tuning or pretraining found; comments stay where they can. -----

REPLACED = (*TUNED, "recipe")
"""Top-level fields that a tuned recipe writes."""


def tuned_data(data: dict[str, Any], found: Found, algorithm: str) -> dict[str, Any]:
    """A spec's plain data with the best recipe.

    For ``planned`` the recipe is marked as tuned, with its evidence and the values before, which
    baselines train with; for another algorithm its fields stand as given, with the evidence. Where
    it trains best with the fields of before, they stay, so that ``planned`` keeps its recipe.

    Args:
        data: plain data of the spec.
        found: the result of the search.
        algorithm: the algorithm that was tuned.
    """
    best = found.best.recipe
    if algorithm != PLANNED and found.best is found.default:
        return data
    fields = {key: value for key, value in best.fields().items() if value is not None}
    fields["local"] = best.local(data)
    evidence = found.evidence.model_dump(mode="json")
    fields["recipe"] = {"source": "none", "evidence": evidence}
    if algorithm == PLANNED:
        decided = [key for key in TUNED if key in fields]
        fields["recipe"] = {
            "source": "tuned",
            "decides": decided,
            "replaced": {key: data[key] for key in decided if data.get(key) is not None},
            "evidence": evidence,
        }
    return {**{key: value for key, value in data.items() if key not in REPLACED}, **fields}


def tuned_text(text: str, found: Found, algorithm: str) -> str:
    """The text of a spec with the best recipe.

    Args:
        text: YAML of the spec.
        found: the result of the search.
        algorithm: the algorithm that was tuned.
    """
    wanted = tuned_data(load_yaml(text, "spec"), found, algorithm)
    rows = [
        f"# Tuned for {algorithm} by {found.evidence.runs} simulated runs on "
        f"{found.evidence.dataset} ({found.evidence.partition}): public or proxy data only.",
        "# The last runs, accuracy in percent over "
        f"{found.evidence.seeds} seeds; best first, then as before:",
        *(f"# {_row(one)}" for one in (*found.ranked[:3], found.default)),
    ]
    if wanted == load_yaml(text, "spec"):
        return "\n".join(rows) + "\n" + text
    return with_fields(text, wanted, REPLACED, rows)


def with_fields(
    text: str, wanted: dict[str, Any], fields: Collection[str], comments: Sequence[str]
) -> str:
    """The text of a spec with other values of some top-level fields, at its end.

    Args:
        text: YAML of the spec.
        wanted: plain data of the result.
        fields: the fields that differ.
        comments: lines before the fields.
    """
    own = {key: wanted[key] for key in fields if key in wanted}
    block = "\n".join(comments) + "\n" + yaml.safe_dump(own, sort_keys=False, width=100)
    edited = _without(text, fields)
    if edited is not None:
        edited = f"{edited.rstrip()}\n\n{block}"
        if load_yaml(edited, "spec") == wanted:
            return edited
    rest = {key: value for key, value in wanted.items() if key not in fields}
    return yaml.safe_dump(rest, sort_keys=False, width=100) + "\n" + block


def _row(one: Ranked) -> str:
    recipe = " ".join(f"{name}={value}" for name, value in one.recipe.numbers().items())
    return f"{100 * one.mean:.2f} +- {100 * one.sd:.2f}: {recipe}"


def _without(text: str, fields: Collection[str]) -> str | None:
    """The text without the fields that are replaced; None where it cannot be edited in place."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        return None
    lines, gone = text.splitlines(), set[int]()
    for key, value in root.value:
        if key.value in fields:
            last = value.end_mark.line
            block = isinstance(value, yaml.CollectionNode) and not value.flow_style
            gone |= set(range(key.start_mark.line, last if block else last + 1))
    return "\n".join(line for number, line in enumerate(lines) if number not in gone)


def pretrained_text(text: str, found: Pretrained) -> str:
    """The text of a spec with initial parameters; as it was where they are not kept.

    Args:
        text: YAML of the spec.
        found: the parameters.
    """
    rows = ["# Initial parameters: public or proxy data only."]
    if found.warm:
        warm, cold = (100 * fmean(scores) for scores in (found.warm, found.cold))
        rows.append(
            "# On classes of the public data that they were not trained on, mean accuracy of "
            f"{len(found.warm)} seeds in percent:\n# {warm:.2f}, from random parameters "
            f"{cold:.2f}; standard error of the gain {100 * found.error:.2f}."
        )
    if found.initial is None:
        return "\n".join([*rows, "# So they are not used.", text])
    wanted = with_initial(load_yaml(text, "spec"), found.initial)
    return with_fields(text, wanted, ("model",), rows)
