"""Free rounds, cohort and clipping norm."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privplan.errors import InfeasibleError, InputError
from privplan.planning.choices import decide_free_choices, lost_signal, total_error
from privplan.planning.objectives import clip_bias
from privplan.planning.problem import fewest_clients
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from tests.planning.problems import make_spec

CONSTANTS = {"smoothness": 0.5, "initial_gap": 2.0}


def searched(**planning):
    return make_spec(planning={"accountant": "rdp", "ratios": "balanced", **planning})


def test_rounds_are_the_best_of_a_scan():
    spec = searched(free=["ratios", "weights", "rounds"], constants=CONSTANTS)
    settled, notes = decide_free_choices(spec)
    why = "of the least error of the whole run, from 1 to 100, ten times rounds"
    assert notes == (f"planning.free: rounds is {settled.rounds}, {why}",)
    assert "rounds" not in settled.planning.free
    _, notes = decide_free_choices(searched(free=["rounds"], constants=CONSTANTS))
    assert notes[-1].endswith("[ratios, weights, rounds] chooses the ratios, too")
    base = settled.model_dump(mode="json")
    for rounds in (1, 3, 8, 12, 16, 20, 24, 40, 100):
        comparison = Spec.parse({**base, "rounds": rounds})
        assert total_error(settled) <= total_error(comparison) * (1 + 1e-3)


def test_the_default_recipe_decides_rounds_within_uploads():
    data = make_spec().model_dump(mode="json", exclude={"clipping_norm", "recipe"})
    free = ["ratios", "weights", "rounds", "cohort"]
    planning = {"accountant": "rdp", "free": free, "max_uploads": 1000}
    settled, _ = decide_free_choices(Spec.parse({**data, "planning": planning}))
    assert settled.rounds * settled.expected_cohort <= 1000 * (1 + 1e-9)
    base = settled.model_dump(mode="json")
    for rounds in (4, 10, 30, 100):
        comparison = Spec.parse(
            {**base, "rounds": rounds, "cohort": min(1000 / rounds, 500)}
        )
        assert lost_signal(settled) <= lost_signal(comparison) * (1 + 1e-3)
    with pytest.raises(
        InputError, match=r"planning\.constants: is required when rounds are free"
    ):
        Spec.parse({**data, "clipping_norm": 1.0, "planning": planning})


@pytest.mark.slow
@given(
    shares=st.tuples(*[st.floats(0, 0.6)] * 2),
    uploads=st.floats(20, 5000),
    sampling=st.sampled_from(["poisson", "fixed_size"]),
)
@settings(max_examples=15, deadline=None)
def test_free_rounds_leave_room_for_least_sampling_ratios(shares, uploads, sampling):
    """A round of the cohort that the least ratios need fits, or the limit is named."""
    data = make_spec().model_dump(mode="json", exclude={"clipping_norm", "recipe"})
    min_ratios = [share if share > 0.01 else None for share in shares]
    groups = [
        {**group, "clients": 40, "min_sampling_ratio": min_ratio}
        for group, min_ratio in zip(data["groups"], min_ratios, strict=True)
    ]
    planning = {
        "accountant": "rdp",
        "free": ["ratios", "weights", "rounds", "cohort"],
        "max_uploads": uploads,
        "max_rounds": 40,
    }
    changes = {
        "groups": groups,
        "cohort": 60,
        "sampling": sampling,
        "planning": planning,
    }
    relation = {} if sampling == "poisson" else {"relation": "replace_one"}
    spec = Spec.parse({**data, **changes, **relation})
    least_uploads = fewest_clients(spec, 1)
    if least_uploads > uploads:
        with pytest.raises(
            InfeasibleError, match=r"planning\.max_uploads: .* nearest feasible"
        ):
            decide_free_choices(spec)
        return
    plan = solve(spec)
    assert plan.spec.rounds * plan.spec.expected_cohort <= uploads * (1 + 1e-9)
    for group, min_ratio in zip(plan.groups, min_ratios, strict=True):
        assert group.sampling_ratio >= (min_ratio or 0.0) * (1 - 1e-9)


def test_a_free_cohort_takes_what_its_limits_allow():
    everybody, _ = decide_free_choices(searched(free=["ratios", "weights", "cohort"]))
    assert everybody.cohort == 500
    free = searched(free=["ratios", "weights", "cohort"], max_uploads=700)
    uploads, _ = decide_free_choices(free)
    assert uploads.cohort == 70


def test_more_clients_per_round_never_hurt():
    base = searched().model_dump(mode="json")
    errors = [
        total_error(Spec.parse({**base, "cohort": cohort}))
        for cohort in (10, 20, 50, 100, 300, 490)
    ]
    assert errors == sorted(errors, reverse=True)


@pytest.mark.slow
def test_clipping_norm_is_the_best_of_a_scan():
    norms = [0.2, 0.3, 0.4, 0.5, 0.9]
    spec = searched(free=["ratios", "weights", "clipping_norm"], update_norms=norms)
    settled, _ = decide_free_choices(spec)
    assert 0.2 < settled.clipping_norm < 0.9
    base = settled.model_dump(mode="json")
    for clip in np.linspace(0.1, 1.0, 10):
        comparison = Spec.parse({**base, "clipping_norm": float(clip)})
        assert total_error(settled) <= total_error(comparison) * (1 + 1e-3)


def test_clip_bias_is_the_mean_excess():
    spec = searched(update_norms=[0.5, 1.0, 3.0])
    alike = Spec.parse({**spec.model_dump(mode="json"), "clipping_norm": 0.75})
    assert clip_bias(alike) == pytest.approx((0.25 + 2.25) / 3)
