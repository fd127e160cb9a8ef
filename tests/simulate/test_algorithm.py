"""Composition is checked, and every table holds every file."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import simulate
from privplan.accounting.release import SamplingLaw
from privplan.errors import InfeasibleError, InputError
from privplan.plan import Plan
from simulate.aggregators.means import literal
from simulate.algorithm import Algorithm, compose
from simulate.algorithms import registry
from simulate.algorithms.entry import Hyperparameters, Records
from simulate.algorithms.registry import ALGORITHMS, algorithm, fitting, row, unfit
from simulate.components import Transform
from simulate.mechanisms.gaussian import gaussian_a_group, gaussian_joint
from simulate.samplers import by_law
from simulate.transforms import clip
from tests.simulate import tiny

ROOT = Path(simulate.__file__).parent
KNOWN = {"name": "mlp-digits", "parameters": 2410}


def sources(folder: str, *others: str) -> list[str]:
    """Names of the files of a folder, without those that are no entry of its table."""
    names = {path.stem for path in (ROOT / folder).glob("*.py")}
    return sorted(names - {"__init__", *others})


def test_noise_needs_a_bounded_update() -> None:
    with pytest.raises(InputError, match=r"algorithm\.mechanism: must follow a transform"):
        compose("bare", tiny.plan(), mechanism=gaussian_a_group())


def test_a_transform_that_proves_nothing_clears_the_bound() -> None:
    opaque = Transform(
        "opaque", lambda updates, context: (updates, None), lambda bound, group: None
    )
    with pytest.raises(InputError, match="opaque"):
        compose("late", tiny.plan(), transforms=(clip(1.0), opaque), mechanism=gaussian_a_group())


def test_the_sampler_executes_the_plan_s_law() -> None:
    with pytest.raises(InputError, match=r"algorithm\.sampler: must draw by the plan's law, full"):
        compose("wrong", tiny.plan(), sampler=by_law(SamplingLaw.POISSON))


def test_a_joint_sum_has_one_weight() -> None:
    with pytest.raises(InputError, match="the same weight"):
        compose(
            "uneven",
            tiny.plan(),
            transforms=(clip(1.0),),
            mechanism=gaussian_joint(),
            aggregator=literal(),
        )


def test_gdpfed_plus_refuses_a_joint_plan() -> None:
    changes: dict[str, Any] = {"sampling": "poisson", "cohort": 2, "model": KNOWN}
    joint = tiny.plan(release="joint", sigmas=(2.0, 2.0), **changes)
    with pytest.raises(InputError, match=r"plan\.release: must be per_group for GDPFed\+; planned"):
        algorithm("GDPFed+", joint)
    assert unfit(joint) == {"plan.release: must be per_group, found 'joint'": ["GDPFed+"]}


@pytest.mark.parametrize("law", ["full", "fixed_size"])
def test_ratios_of_their_own_need_poisson_sampling(law: str) -> None:
    plan = tiny.plan(sampling=law, model=KNOWN)
    own = ["IDP-FedAvg-Sample", "Time-adaptive HDPFL"]
    for name in own:
        with pytest.raises(InputError, match=f"plan.sampling: must be poisson for {name}; planned"):
            algorithm(name, plan)
    assert not set(own) & set(fitting(plan))
    assert unfit(plan)[f"plan.sampling: must be poisson, found '{law}'"] == own


@pytest.mark.parametrize(("model", "fits"), [("mlp-digits", True), ("lstm", False)])
def test_adapters_need_a_row_of_blocks(model: str, fits: bool) -> None:
    plan = tiny.plan(model={"name": model, "parameters": 2})
    assert ("HyperFL-LPM" in fitting(plan)) is fits


def test_an_infeasible_plan_names_the_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(plan: Plan, records: Records) -> Plan:
        raise InfeasibleError("no noise meets the budget")

    found = {"GDPFed": replace(ALGORITHMS["GDPFed"], executes=fails)}
    monkeypatch.setattr(registry, "ALGORITHMS", found)
    with pytest.raises(InfeasibleError, match="GDPFed: no noise meets the budget"):
        algorithm("GDPFed", tiny.plan(rounds=4))


@pytest.mark.parametrize(
    ("name", "numbers", "said"),
    [
        ("GDPFed+", {"foo": 1}, "set: must be left out for GDPFed+, which has no numbers"),
        ("HyperFL", {"foo": 1}, "set: must be one of hidden, head_rate for HyperFL, found 'foo'"),
        ("DP-FedSAM", {"rho": -1}, "set.rho: must be in [0, 1e+06], found -1"),
    ],
)
def test_numbers_that_a_method_cannot_have(name: str, numbers: dict[str, float], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        row(name).complete(Hyperparameters(numbers=numbers))


def test_every_algorithm_file_is_in_the_catalogue() -> None:
    modules = {found.build.__module__.rpartition(".")[2] for found in ALGORITHMS.values()}
    assert sources("algorithms", "entry", "registry", "requirements") == sorted(modules)


@pytest.mark.parametrize("name", sources("algorithms", "entry", "registry", "requirements"))
def test_every_algorithm_says_what_it_protects_and_releases(name: str) -> None:
    text = (ROOT / "algorithms" / f"{name}.py").read_text()
    words = re.split(r'"""', text)[1]
    assert "Unit of privacy:" in words
    assert "Released:" in words


def test_every_law_has_a_sampler() -> None:
    assert [by_law(law).law for law in SamplingLaw] == list(SamplingLaw)


@pytest.mark.parametrize("name", ["gdpfed+", "GDPFED+", " GDPFed+ "])
def test_names_are_matched_in_any_case(name: str) -> None:
    assert row(name).name == "GDPFed+"


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"algorithm: must be one of FedAvg, .*found 'nope'"):
        row("nope")


def test_only_the_mechanisms_draw_normal_noise() -> None:
    drawing = [
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if re.search(r"standard_normal|\.normal\(|randn|Purpose\.NOISE", path.read_text())
    ]
    assert sorted(drawing) == [
        "engine/loop.py",  # names the stream
        "engine/measurements.py",  # takes what a client says that it drew out of what it sent
        "mechanisms/gaussian.py",
        "mechanisms/record_noise.py",
        "pilot/observation.py",  # directions in which a pilot looks; nothing is protected by them
    ]


def test_an_algorithm_is_frozen() -> None:
    algorithm = compose("plain", tiny.plan())
    assert isinstance(algorithm, Algorithm)
    with pytest.raises(AttributeError):
        algorithm.name = "other"  # type: ignore[misc]


COUNTS = (
    ("PFA", "directions"),
    ("Robust-HDP", "rows"),
    *((name, "hidden") for name in ("HyperFL", "HyperFL-LPM", "pFedHN", "pFedHN-PC")),
)


@pytest.mark.parametrize(("name", "number"), COUNTS)
@pytest.mark.parametrize("value", [10.5, 0.0, float("nan"), float("inf")])
def test_a_number_that_counts_is_whole(name: str, number: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"set\.{number}: must be"):
        row(name).complete(Hyperparameters(numbers={number: value}))
