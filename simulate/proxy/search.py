"""Training runs on public or proxy data: the search of a recipe, and tables for forecasts.

A run goes through all rounds of a plan with its noise, because the first rounds have longer
updates than later ones, so that what is best for a short pilot is not best for the run. It is made
cheaper by a smaller cohort instead: with ratios and noise multipliers times a share, the noise of
the mean update stays that of the plan. Such a plan protects nobody, as nobody needs protection in
proxy data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean, stdev
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from pydantic import Field

from privplan.accounting.release import SamplingLaw
from privplan.errors import InputError, PrivplanError
from privplan.files import Convert, edited, load_yaml
from privplan.forecast.features import (
    Coverage,
    ProxyRun,
    ProxyTable,
    client_shares,
    plan_features,
)
from privplan.plan import Plan
from privplan.planning.problem import fewest_clients
from privplan.planning.recipe import relative_noise
from privplan.planning.solver import solve
from privplan.processes import Journal, Progress, finish, in_jobs, key_of, resumable
from privplan.spec.spec import Spec
from privplan.spec.training import TUNED, fields_digest, without_recipe
from privplan.values import Count, Fraction, NonNegative, Positive, Value, digest, parse
from simulate.algorithms.registry import ALGORITHMS, algorithm, no_server
from simulate.data.dataset import Dataset, fitted
from simulate.data.partition.schemes import partition, scheme
from simulate.data.registry import load, whole
from simulate.engine.evaluation import AccuracyMeasures, by_group
from simulate.engine.experiment import Experiment
from simulate.engine.loop import evaluate, one_core
from simulate.models.registry import model
from simulate.runs.request import Request, prepare
from simulate.runs.study import Problem, Space, search, to_the_end

# --- A training run on proxy data with a plan's noise. -------------------------------------------


class Setting(Value):
    """What all runs on proxy data share."""

    spec: dict[str, Any]  # plain data
    algorithm: str
    dataset: str
    partition: str
    data_dir: str | None = None
    own: Any = Field(None, exclude=True)  # the user's data and model instead, OwnParts


def smaller(plan: Plan, share: float) -> Plan:
    """The plan with a share of the cohort and the same noise of the mean; it certifies nothing."""
    if share == 1 or {one.law.single for one in plan.spec.plain_laws} != {
        SamplingLaw.POISSON
    }:
        return plan
    names = ("sampling_ratio", "expected_cohort", "noise_multiplier")
    groups = tuple(
        group.model_copy(update={name: getattr(group, name) * share for name in names})
        for group in plan.groups
    )
    return plan.model_copy(update={"groups": groups})


def trained(
    setting: Setting, plan: Plan, share: float, seed: int
) -> tuple[Experiment, AccuracyMeasures]:
    """Trains a plan on the proxy data with a share of its cohort."""
    initial = plan.spec.model.initial
    source = None if initial is None else initial.source
    if source and whole(source) == whole(setting.dataset):
        rule = "must be other data than those that model.initial was trained on"
        raise InputError.one("dataset", rule, setting.dataset)
    # the algorithm's own plan first: a baseline solves the spec its own way
    executed = algorithm(setting.algorithm, plan).plan
    built = ALGORITHMS.get(setting.algorithm).build(smaller(executed, share))
    if setting.own is not None:
        own, base = (
            setting.own,
            Request(plan, setting.algorithm, setting.dataset, Path(), seed),
        )
        base = replace(base, device="cpu", partition=setting.partition, noise="seeded")
        request = replace(base, own_data=own.data, own_model=own.model)
        experiment = replace(prepare(request), algorithm=built, workers=1)
    else:
        data, chosen = loaded(setting), scheme(setting.partition)
        assigned = partition(
            chosen, data.train_y.numpy(), plan.groups, seed, data.train_people
        )
        network, device = model(built.plan.spec.model.name), torch.device("cpu")
        experiment = Experiment(built, network, data, assigned, seed, device, workers=1)
    end = to_the_end(experiment)
    with one_core():
        return experiment, evaluate(experiment, end, most=100)


def loaded(setting: Setting) -> Dataset:
    """The proxy data, with images that fit the model."""
    return _loaded(setting.dataset, setting.data_dir, setting.spec["model"]["name"])


@lru_cache(maxsize=1)
def _loaded(dataset: str, folder: str | None, network: str) -> Dataset:
    """The proxy data, read and fitted once per process."""
    data = load(dataset, None if folder is None else Path(folder))
    return fitted(data, model(network).input_shape)


# --- Recipes to try: points around the recipe of a plan. -----------------------------------------

FACTORS = MappingProxyType({"clipping_norm": 4.0, "step": 2.5, "local_rate": 2.0})
"""Largest factor between a recipe that is tried and the default recipe, in either direction."""
MOMENTA = (0.0, 0.5, 0.8)  # values of the server's momentum
DECAYS = (
    0.0,
    0.7,
    0.8,
    0.9,
)  # values of the decay of averages; 0 releases the last model
LOCAL_DECAYS = (0.98, 0.99, 1.0)  # values of the decay of the local learning rate


class Candidate(Value):
    """A recipe to try."""

    clipping_norm: Positive
    step: Positive  # server learning rate over 1 - momentum, times the clipping norm
    momentum: NonNegative
    decay: NonNegative  # of the average of the models
    local_rate: Positive
    local_decay: Positive  # factor of the local learning rate per round
    local_steps: Count
    # whether there is a server; a method with its own has no step, momentum or average to choose
    server: bool = Field(True, exclude_if=bool)

    def numbers(self) -> dict[str, float]:
        """The numbers that are chosen, by name."""
        server = () if self.server else ("step", "momentum", "decay")
        return self.model_dump(exclude={"server", *server})

    def fields(self) -> dict[str, Any]:
        """The fields of a spec that the recipe decides, but for local training."""
        if not self.server:
            return {
                "clipping_norm": self.clipping_norm,
                "server": None,
                "averaging": None,
            }
        rate = float(f"{self.step * (1 - self.momentum) / self.clipping_norm:.4g}")
        server: dict[str, Any] = {"optimizer": "sgd", "learning_rate": rate}
        if self.momentum:
            server = {
                "optimizer": "momentum",
                "learning_rate": rate,
                "momentum": self.momentum,
            }
        averaging = {"method": "ema", "decay": self.decay} if self.decay else None
        return {
            "clipping_norm": self.clipping_norm,
            "server": server,
            "averaging": averaging,
        }

    def local(self, data: dict[str, Any]) -> dict[str, Any]:
        """Local training of a spec's plain data with the candidate's numbers."""
        local = {
            **(data.get("local") or {}),
            "learning_rate": self.local_rate,
            "learning_rate_decay": self.local_decay,
            "steps": self.local_steps,
        }
        return {name: value for name, value in local.items() if value is not None}

    def applied(self, data: dict[str, Any]) -> dict[str, Any]:
        """A spec's plain data with the candidate; no other recipe is decided for them."""
        return {**data, **self.fields(), "local": self.local(data), "recipe": "none"}


def default_candidate(plan: Plan, *, own_server: bool = False) -> Candidate:
    """The recipe of a solved plan."""
    spec, server, averaging = plan.spec, plan.spec.server, plan.spec.averaging
    if server is not None and server.optimizer not in ("sgd", "momentum"):
        rule = "must be sgd or momentum, or left out, to be tuned"
        raise InputError.one("server.optimizer", rule, server.optimizer)
    if averaging is not None and averaging.method != "ema":
        raise InputError.one(
            "averaging.method", "must be ema to be tuned", averaging.method
        )
    momentum = 0.0 if server is None else server.momentum or 0.0
    rate = 1.0 if server is None else server.learning_rate or 1.0
    return Candidate(
        clipping_norm=spec.clipping_norm,
        step=rate * spec.clipping_norm / (1 - momentum),
        momentum=momentum,
        decay=0.0 if averaging is None else averaging.decay or 0.0,
        local_rate=spec.local.learning_rate,
        local_decay=spec.local.learning_rate_decay,
        local_steps=spec.local.steps,
        server=not own_server,
    )


def space(default: Candidate) -> Space:
    """The recipes to try around the default one; local work at most doubles."""
    steps = default.local_steps
    choices: dict[str, Sequence[float]] = {
        "momentum": MOMENTA,
        "decay": DECAYS,
        "local_decay": LOCAL_DECAYS,
        "local_steps": (max(1, round(steps / 2)), 2 * steps),
    }
    middle = default.numbers()
    ranges = {name: (middle[name] / one, middle[name] * one) for name, one in FACTORS.items()
              if name in middle}  # fmt: skip
    return {
        **ranges,
        **{
            name: sorted({middle[name], *one})
            for name, one in choices.items()
            if name in middle
        },
    }


class Trial(Value):
    """One run of a recipe; the seed is that of partition, cohorts, mini-batches and noise."""

    recipe: Candidate
    share: Fraction  # of the plan's cohort
    seed: int


def accuracy(task: tuple[Setting, Trial]) -> float:
    """Returns the test accuracy of a trial on the proxy data, in [0, 1]."""
    setting, trial = task
    plan = solve(Spec.parse(trial.recipe.applied(setting.spec)), second_opinion=False)
    return trained(setting, plan, trial.share, trial.seed)[1].accuracy


# -------------------------------------------------------------------------------------------------
# Search of a recipe. It trains with a small share of the plan's cohort, and if it is among the
# better third so far with a larger one, then with the whole cohort and several seeds (successive
# halving). The recipe before is the first trial and passes all rungs, so that the result is
# compared with it.

PLANNED = "planned"  # the algorithm whose plans say that their recipe was tuned
STORAGE = "study.db"
SHARES = (1 / 8, 1 / 3, 1.0)  # shares of the plan's cohort in the rungs
FINAL_SEEDS = 2  # seeds of the last rung
STARTUP = 8  # recipes that are drawn at random before the estimator proposes any


class Evidence(Value):
    """Runs that a tuned recipe rests on, written beside the spec; accuracies are in [0, 1]."""

    dataset: str
    partition: str
    algorithm: str
    runs: int
    seed: int  # of the first run
    accuracy: float  # mean over the seeds
    seeds: int
    default_accuracy: float  # of the recipe before
    rounds: int
    noise: float  # norm of the noise of the mean update over the clipping norm
    model: str
    recipe: str  # ``fields_digest``
    trials: tuple[dict[str, Any], ...]  # of the last rung, best first


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


def search_recipe(
    setting: Setting,
    trials: int,
    folder: Path,
    seed: int = 0,
    jobs: int = 1,
    progress: Progress = lambda done, total: None,
) -> Found:
    """The best of so many recipes; the trials are stored in the folder."""
    plan = solve(Spec.parse(setting.spec), second_opinion=False)
    entry, before = ALGORITHMS.get(setting.algorithm), plan
    own_server = no_server in entry.requires
    if own_server and (fault := no_server(plan)):
        rule = f"{fault.rule} for {setting.algorithm}, which has its own"
        raise InputError.one(fault.field.removeprefix("plan."), rule, fault.found)
    if not entry.executes(plan):
        # A method that plans for itself trains without the plan's recipe, so the search begins
        # there too: steps that are meant for clipped updates would let it diverge.
        plain = without_recipe(plan.spec.model_dump(mode="json"))
        before = solve(Spec.parse(plain), second_opinion=False)
    default = default_candidate(before, own_server=own_server)
    loaded(setting)  # missing data are refused before anything is written

    seeds = (1, 1, FINAL_SEEDS)
    rungs = []
    runs: dict[str, tuple[float, int]] = {}
    for share, count in zip(SHARES, seeds, strict=True):
        share = 1.0 if smaller(plan, share) == plan else share
        own = {
            f"{share:.4g}, seed {one}": (share, one)
            for one in range(seed, seed + count)
        }
        rungs.append(tuple(own))
        runs |= own

    def recipe(params: dict[str, Any]) -> Candidate:
        return Candidate(**{**default.model_dump(), **params})

    def task(name: str, key: str, params: dict[str, Any]) -> tuple[Setting, Trial]:
        share, one = runs[key]
        return setting, Trial(recipe=recipe(params), share=share, seed=one)

    varied = space(default)
    first = {name: getattr(default, name) for name in varied}
    plain = setting.model_dump(mode="json", exclude={"data_dir"})
    identity = {"setting": plain, "seed": seed, "shifts": [], "sampler": "tpe"}
    tried = search(
        folder / STORAGE,
        {"recipe": Problem(varied, first, rungs, STARTUP)},
        task,
        accuracy,
        identity=digest(identity),
        seed=seed,
        trials=trials,
        jobs=jobs,
        progress=progress,
    )["recipe"]
    last = [
        Ranked(recipe(one.params), one.scores)
        for one in tried
        if one.scores is not None
    ]
    ranked = tuple(sorted(last, key=lambda one: -one.mean))
    best, own_spec = ranked[0], Spec.parse(ranked[0].recipe.applied(setting.spec))
    evidence = Evidence(
        dataset=setting.dataset, partition=setting.partition, algorithm=setting.algorithm,
        runs=sum(one.runs for one in tried), seed=seed, accuracy=best.mean, seeds=FINAL_SEEDS,
        default_accuracy=last[0].mean, rounds=plan.spec.rounds, noise=relative_noise(plan),
        model=own_spec.model.name, recipe=fields_digest(own_spec.model_dump(mode="json")),
        trials=tuple({**one.recipe.numbers(), "scores": one.scores} for one in ranked),
    )  # fmt: skip
    return Found(
        ranked, last[0], evidence, tuple(_warnings(setting.algorithm, best, last[0]))
    )


def _warnings(name: str, best: Ranked, default: Ranked) -> list[str]:
    """What a reader of the result should know."""
    if best is default:
        return ["no recipe was better than the one before, which is kept"]
    lines, error = [], math.hypot(best.sd, default.sd) / math.sqrt(FINAL_SEEDS)
    if best.mean - default.mean < 2 * error:
        lines.append(
            f"{100 * (best.mean - default.mean):+.2f} points over the recipe before are within "
            f"twice the standard error, {100 * error:.2f}"
        )
    if name != PLANNED:
        lines.append(
            f"the fields are those for {name}; while they stand in the spec, {PLANNED} trains "
            "with them, too, not with its default recipe"
        )
    return lines


def tuned_text(text: str, found: Found, evidence: str) -> str:
    """The text of a spec with the best recipe.

    For ``planned`` the recipe is marked as tuned, with the values before, which baselines train
    with; for another algorithm its fields stand as given. Where it trains best with the fields of
    before, they stay, so that ``planned`` keeps its recipe.
    """
    basis, best, data = found.evidence, found.best.recipe, load_yaml(text, "spec")

    def row(one: Ranked) -> str:
        recipe = " ".join(
            f"{name}={value}" for name, value in one.recipe.numbers().items()
        )
        return f"{100 * one.mean:.2f} +- {100 * one.sd:.2f}: {recipe}"

    rows = [
        f"Tuned for {basis.algorithm} by {basis.runs} simulated runs on {basis.dataset} "
        f"({basis.partition}): public or proxy data only.",
        f"It holds at {basis.rounds} rounds and noise {basis.noise:.3g} in clipping norms; "
        f"more in {evidence}.",
        f"The last runs, accuracy in percent over {basis.seeds} seeds; best first, then as before:",
        *map(row, (*found.ranked[:3], found.default)),
    ]
    if basis.algorithm != PLANNED and found.best is found.default:
        return with_fields(text, data, data, rows)
    fields = {key: value for key, value in best.fields().items() if value is not None}
    fields |= {"local": best.local(data), "recipe": {"source": "none"}}
    if basis.algorithm == PLANNED:
        decided = [key for key in TUNED if key in fields]
        fields["recipe"] = {
            "source": "tuned",
            "decides": decided,
            "replaced": {
                key: data[key] for key in decided if data.get(key) is not None
            },
        }
    rest = {key: value for key, value in data.items() if key not in (*TUNED, "recipe")}
    return with_fields(text, data, {**rest, **fields}, rows)


def with_fields(
    text: str, data: dict[str, Any], wanted: dict[str, Any], comments: Sequence[str]
) -> str:
    """A spec's text with other values of some top-level fields, at its end after the comments."""
    own = [key for key in wanted if key not in data or wanted[key] != data[key]]
    if not own and wanted == data:
        return "".join(f"# {line}\n" for line in comments) + text

    def edit(content: Any, convert: Convert) -> None:
        for key in data:
            if key not in wanted or key in own:
                del content[key]
        for key in own:
            content[key] = convert(wanted[key])
        content.yaml_set_comment_before_after_key(
            own[0], before="\n" + "\n".join(comments)
        )

    return edited(text, edit, wanted, "spec").rstrip() + "\n"


# -------------------------------------------------------------------------------------------------
# Runs of plans around a spec's on proxy data: the table that forecasts are made from; resumable.
# Plans differ in budgets, rounds, cohort, training recipe and partition, drawn at random by a
# seed. Each is trained for all its rounds with its noise and a share of its cohort, as in tuning.

PROXY_JOURNAL = "proxy.jsonl"
DRAWN = "random"
"""Instead of a partition: every run draws its own, so that forecasts know all kinds of coverage."""
_ALPHAS = (0.15, 3.0)  # range of the parameter of Dirichlet partitions that are drawn
_IID, _DIRICHLET = 0.2, 0.2
"""Shares of IID and Dirichlet among drawn partitions; in the others a group alone holds classes."""
LEAST_SHARES = (0.0, 0.3, 0.6, 1.0)
"""Floors under weights, over the groups' shares of the clients, of every other pair of runs."""


class Variation(Value):
    """A plan around a spec's; numbers are factors but for rounds, decay, seed and share."""

    epsilons: tuple[Positive, ...]  # per group
    rounds: Count
    cohort: Positive = 1.0
    least_share: NonNegative | None = None  # of its number that each group counts for
    clip: Positive = 1.0
    step: Positive = 1.0  # length of the server's step
    decay: float | None = (
        None  # of the average of the models; None for the plan's own recipe
    )
    partition: str
    seed: int
    share: Fraction  # of the plan's cohort that takes part


def variations(
    spec: Spec,
    partitions: Sequence[str],
    count: int,
    seed: int,
    share: float,
    classes: int = 10,
) -> list[Variation]:
    """Random plans around a spec's; every second one has a recipe of its own."""
    blocks = (one.law.rounds_for(1) for one in spec.plain_laws)
    step = math.lcm(*(one for one in blocks if spec.rounds % one == 0))
    source, drawn = np.random.default_rng([seed, 13]), []
    free = (
        spec.cohort is not None
        and not spec.everyone
        and spec.planning.ratios != "given"
    )
    weighed = spec.weighting == "optimal" and all(
        one.min_weight is None for one in spec.groups
    )

    def factor(most: float) -> float:
        return float(f"{most ** source.uniform(-1, 1):.4g}")

    for number in range(count):
        common = factor(5.0)
        epsilons = tuple(float(f"{common * factor(2.5):.4g}") for _ in spec.groups)
        recipe: dict[str, Any] = {"clip": factor(4.0), "step": factor(2.5)}
        recipe["decay"] = float(source.choice(DECAYS))
        rounds, cohort = (
            max(1, round(spec.rounds * factor(3.0) / step)) * step,
            factor(2.0),
        )
        own, held = source.random() < 0.5, _drawn_partition(source, spec, classes)
        named = partitions[number % len(partitions)]
        # other weights than the spec's, from which the curve learns what the weight of a class does
        least = float(np.random.default_rng([seed, 14, number]).choice(LEAST_SHARES))
        drawn.append(
            Variation(
                epsilons=epsilons,
                rounds=max(2, rounds),
                cohort=cohort if free else 1.0,
                least_share=least if weighed and number % 4 > 1 else None,
                partition=held if named == DRAWN else named,
                seed=seed + number,
                share=share,
                **(recipe if own else {}),
            )
        )
    return drawn


def _drawn_partition(source: np.random.Generator, spec: Spec, classes: int) -> str:
    """A random partition: IID, Dirichlet, or one group alone holds up to half of the classes."""
    kind, alpha = source.random(), float(np.exp(source.uniform(*np.log(_ALPHAS))))
    group = spec.groups[int(source.integers(len(spec.groups)))].name
    number = int(source.integers(1, max(2, classes // 2 + 1)))
    labels = ",".join(map(str, sorted(source.permutation(classes)[:number].tolist())))
    if kind < _IID or (kind >= _IID + _DIRICHLET and len(spec.groups) == 1):
        return "iid"
    return (
        f"dirichlet:{alpha:.2g}"
        if kind < _IID + _DIRICHLET
        else f"by-class:{group}={labels}"
    )


def varied(data: dict[str, Any], one: Variation) -> Plan:
    """The plan of a variation of a spec's plain data."""
    groups = [
        {**group, "epsilon": float(f"{group['epsilon'] * factor:.6g}")}
        for group, factor in zip(data["groups"], one.epsilons, strict=True)
    ]
    changed = {**data, "groups": groups, "rounds": one.rounds}
    if one.least_share is not None:
        changed["planning"] = {**data["planning"], "least_share": one.least_share}
    if one.cohort != 1:
        spec = Spec.parse({**data, "groups": groups})
        cohort = max(
            round(data["cohort"] * one.cohort),
            math.ceil(fewest_clients(spec, one.rounds)),
        )
        changed["cohort"] = min(float(cohort), sum(map(spec.drawable, spec.groups)))
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
    by_class, data = measured.by_class, experiment.data
    counts = np.bincount(data.train_labels.numpy(), minlength=len(data.classes))
    return ProxyRun(
        plan=features,
        coverage=Coverage(
            shares=tuple(tuple(shares[group.name].tolist()) for group in plan.groups),
            clients=client_shares(plan.spec),
            skew=experiment.label_skew(),
            frequency=tuple((counts / counts.sum()).tolist()),
        ),
        partition=one.partition,
        seed=one.seed,
        accuracy=measured.accuracy,
        accuracy_by_group=tuple(accuracies[group.name] for group in plan.groups),
        accuracy_by_class=None
        if np.isnan(by_class).any()
        else tuple(by_class.tolist()),
    ).model_dump(mode="json")


def proxy_table(
    setting: Setting,
    todo: Sequence[Variation],
    folder: Path,
    jobs: int = 1,
    progress: Progress = lambda done, total: None,
) -> ProxyTable:
    """Trains all variations that are not in the folder's journal; returns their table."""

    def check(point: Any, result: Any) -> None:
        """Check that a line of the journal can be a run's."""
        try:
            parse(ProxyRun, result)
        except PrivplanError:
            raise ValueError from None
        if set(point) != {*Variation.model_fields}:
            raise ValueError

    identity = setting.model_dump(mode="json", exclude={"data_dir"})
    if setting.own is not None:
        identity["own"] = setting.own.data.prepared(Spec.parse(setting.spec).groups)[
            0
        ].digest
    journal = Journal[dict[str, Any]](folder / PROXY_JOURNAL, digest(identity), check)
    journal.load()  # another sweep is refused before the lock is created
    items = {key_of(one.model_dump(mode="json")): (setting, one) for one in todo}
    with resumable(folder):
        spread = in_jobs(min(jobs, len(items)))
        done = finish(
            items, proxy_run, spread=spread, journal=journal, progress=progress
        )
    runs = tuple(parse(ProxyRun, done[key]) for key in items)
    return ProxyTable(
        dataset=setting.dataset,
        model=str(setting.spec["model"]["name"]),
        classes=len(runs[0].coverage.shares[0]),
        share=todo[0].share,
        runs=runs,
    )
