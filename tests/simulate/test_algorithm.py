"""Algorithms: components must fit each other, and only mechanisms draw privacy noise."""

import re
from pathlib import Path

import pytest

import simulate
from privplan.accounting.release import SamplingLaw
from privplan.errors import InputError
from simulate.aggregators import literal
from simulate.algorithm import by_law, compose
from simulate.components import Transform
from simulate.mechanisms import gaussian_joint, gaussian_per_group
from simulate.transforms import clip
from tests.simulate import tiny

ROOT = Path(simulate.__file__).parent


def test_noise_needs_a_bounded_update():
    with pytest.raises(InputError, match=r"algorithm\.mechanism: must follow a transform"):
        compose("bare", tiny.plan(), mechanism=gaussian_per_group())


def test_a_transform_that_proves_nothing_clears_the_bound():
    opaque = Transform(
        "opaque", lambda updates, context: (updates, None), lambda bound, group: None
    )
    with pytest.raises(InputError, match="opaque"):
        compose("late", tiny.plan(), transforms=(clip(1.0), opaque), mechanism=gaussian_per_group())


def test_the_sampler_executes_the_plan_s_law():
    with pytest.raises(InputError, match=r"algorithm\.sampler: must draw by the plan's law, full"):
        compose("wrong", tiny.plan(), sampler=by_law(SamplingLaw.POISSON))


def test_a_joint_sum_has_one_weight():
    with pytest.raises(InputError, match="the same weight"):
        compose(
            "uneven", tiny.plan(), transforms=(clip(1.0),), mechanism=gaussian_joint(),
            aggregator=literal(),
        )  # fmt: skip


def test_every_law_has_a_sampler():
    assert [by_law(law).law for law in SamplingLaw] == list(SamplingLaw)


def test_only_the_mechanisms_draw_normal_noise():
    drawing = [
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if re.search(r"standard_normal|\.normal\(|randn|Purpose\.NOISE", path.read_text())
    ]
    assert sorted(drawing) == [
        "attacks/inversion.py",  # images on which an attacker scales its search
        "contrib/sensitivity/neighbours.py",  # a generator that draws zeros
        "engine/loop.py",  # names the stream; subtracts what a client says that it drew
        "mechanisms.py",
        "models/network.py",  # dropout of a user's module
        "models/own.py",  # made-up records on which a user's module is tried
        "proxy/pilot.py",  # directions in which a pilot looks; nothing is protected by them
        "replay/rounds.py",  # draws a run's noise again, to compare; nothing is protected by it
    ]
