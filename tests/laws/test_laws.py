"""Laws as values: names, the registry, and agreement of their bounds with each other."""

from __future__ import annotations

import json
import pickle

import pytest

from privplan.accounting.rdp import rdp_of_release
from privplan.accounting.release import Relation, Release, SamplingLaw
from privplan.errors import InputError
from privplan.laws.law import LAWS, Law, renyi_of_pair


def test_names_are_text_and_one_object_each():
    assert json.dumps(SamplingLaw.POISSON) == '"poisson"'
    assert pickle.loads(pickle.dumps(SamplingLaw.FULL)) is SamplingLaw.FULL
    assert SamplingLaw("fixed_size") is SamplingLaw.FIXED_SIZE
    assert [str(name) for name in SamplingLaw] == ["full", "poisson", "fixed_size"]
    with pytest.raises(ValueError, match="shuffle"):
        SamplingLaw("shuffle")
    with pytest.raises(InputError, match="sampling: must be one of full, poisson, fixed_size"):
        Release(1.0, 0.1, "shuffle")


def test_every_law_registers_under_its_name():
    for name, law in LAWS.items():
        assert isinstance(law, Law)
        assert law.name == name
        assert SamplingLaw(name).law is law


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("law", ["poisson", "full", "fixed_size"])
def test_moment_bounds_of_the_pairs_are_those_of_the_law(law, relation):
    """The default of ``Law.renyi`` gives what each law states, wherever it gives anything."""
    found = LAWS.get(law)
    for ratio in (1.0,) if law == "full" else (0.2, 1.0):
        stated, derived = found.renyi(relation, 1.5, ratio), Law.renyi(found, relation, 1.5, ratio)
        if derived is None:
            assert any(
                renyi_of_pair(pair) is None
                for pair in found.dominating_pairs(relation, 1 / 1.5, ratio).upper
            )
        elif not (law == "fixed_size" and relation == Relation.ZERO_OUT):
            assert {(b.moments, round(b.noise_multiplier, 12), b.ratio) for b in derived} <= {
                (b.moments, round(b.noise_multiplier, 12), b.ratio) for b in stated
            } or (law == "fixed_size" and ratio == 1)
        assert (rdp_of_release(Release(1.5, ratio, law), relation) > 0).all()
