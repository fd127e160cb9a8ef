"""What is left: closed forms under full participation, and the accountant itself elsewhere."""

import math

import pytest

from privplan.accounting.gdp import mu_of
from privplan.accounting.rdp import ORDERS
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.book import spending as filters
from privplan.book.spending import Account, remaining
from privplan.errors import InfeasibleError

DELTA = 1e-5


def _account(*histories: History, relation: Relation = Relation.ADD_REMOVE) -> Account:
    names = tuple(f"run{n}" for n in range(len(histories)))
    return Account("", "strict", "client", relation, names, histories, DELTA)


def _full(sigma: float, rounds: int) -> History:
    return History.repeated(Release(sigma, 1.0, SamplingLaw.FULL), rounds)


def test_full_participation_has_a_closed_form() -> None:
    account = _account(_full(30.0, 10), _full(40.0, 20))
    found = remaining(account, 3.0, DELTA)
    room = mu_of(3.0, DELTA) ** 2 - 10 / 30.0**2 - 20 / 40.0**2
    assert found.repetitions == math.floor(room / (20 / 40.0**2))
    assert found.noise_multiplier == pytest.approx(math.sqrt(20 / room), rel=2e-4)
    assert found.noise_multiplier is not None
    assert found.noise_multiplier >= math.sqrt(20 / room)
    assert found.last_run == "run1"
    assert found.rule == "gaussian filter"  # costs nothing over exact composition
    assert found.headroom == pytest.approx(3.0 - found.spent_upper, abs=1e-6)
    exact = remaining(account, 3.0, DELTA, rule="exact")
    assert found.repetitions == exact.repetitions
    assert exact.headroom == 3.0 - exact.spent_upper


@pytest.mark.parametrize("relation", [Relation.ADD_REMOVE, Relation.REPLACE_ONE])
@pytest.mark.parametrize("law", [SamplingLaw.POISSON, SamplingLaw.FIXED_SIZE])
def test_the_answers_fit_and_one_more_does_not(law: SamplingLaw, relation: Relation) -> None:
    first, last = (History.repeated(Release(sigma, 0.02, law), 20) for sigma in (5.0, 6.0))
    account = _account(first, last, relation=relation)
    found = remaining(account, 2.0, DELTA, rule="exact")
    assert account.composed(last * found.repetitions, DELTA).upper <= 2.0
    assert account.composed(last * (found.repetitions + 1), DELTA).upper > 2.0
    assert found.repetitions > 0
    sigma = found.noise_multiplier
    assert sigma is not None
    next_run = History.repeated(Release(sigma, 0.02, law), 20)
    assert account.composed(next_run, DELTA).upper == found.total
    assert found.total is not None
    assert found.total <= 2.0
    less = History.repeated(Release(sigma * 0.999, 0.02, law), 20)
    assert account.composed(less, DELTA).upper > 2.0


def test_a_next_run_may_have_another_shape() -> None:
    account = _account(History.repeated(Release(2.0, 0.02), 50))
    found = remaining(account, 1.0, DELTA, sampling_ratio=0.1, rounds=200, rule="exact")
    assert (found.next_ratio, found.next_rounds) == (0.1, 200)
    sigma = found.noise_multiplier or 0.0
    after = account.composed(History.repeated(Release(sigma, 0.1), 200), DELTA)
    assert 0.998 <= after.upper <= 1.0


def test_sampled_runs_are_filtered_by_the_divergence_at_one_order() -> None:
    """The filter's own definition: capacity and cost at the order that fits the first run."""
    one = History.repeated(Release(2.0, 0.02), 50)
    account = _account(one, one)
    found = remaining(account, 1.0, DELTA)
    order = filters.order_of(1.0, DELTA, one)
    room = filters.capacity("renyi", 1.0, DELTA, order)
    each = filters.cost("renyi", one, Relation.ADD_REMOVE, order)
    assert found.rule == f"renyi filter at order {ORDERS[order]:g}"
    assert found.repetitions == room // each - 2
    assert found.total is not None
    assert found.noise_multiplier is not None
    assert 0.997 <= found.total <= 1.0
    exact = remaining(account, 1.0, DELTA, rule="exact")
    assert exact.noise_multiplier == pytest.approx(found.exact_noise_multiplier, rel=2e-4)
    assert found.noise_multiplier > (found.exact_noise_multiplier or math.inf)
    assert exact.exact_noise_multiplier is None


def test_a_refusal_by_a_filter_names_what_it_counts() -> None:
    account = _account(_full(10.0, 30))
    exact = account.composed(History(), DELTA).upper
    total = exact * 1.01
    with pytest.raises(InfeasibleError, match="nothing is left") as refused:
        remaining(account, total, DELTA, rule="renyi")
    assert float(str(refused.value).split(" counts ")[1]) > total
