"""The laws of the samplers, and the independence of streams. False alarms below 1e-6 each."""

from __future__ import annotations

import itertools

import numpy as np
from scipy import stats

from privplan.accounting.release import SamplingLaw
from privplan.streams import Purpose, stream
from simulate.algorithm import by_law

CLIENTS, RATIO, DRAWS = 400, 0.05, 3000


def draws(sampler: object) -> list[np.ndarray]:
    return [
        sampler.draw(stream(1, Purpose.SAMPLING, index, 0), CLIENTS, RATIO, 1)  # type: ignore[attr-defined]
        for index in range(DRAWS)
    ]


def test_poisson_sizes_are_binomial_and_every_client_is_as_likely():
    cohorts = draws(by_law(SamplingLaw.POISSON))
    sizes = np.array([len(cohort) for cohort in cohorts])
    mean, variance = CLIENTS * RATIO, CLIENTS * RATIO * (1 - RATIO)
    assert abs(sizes.mean() - mean) < 5 * np.sqrt(variance / DRAWS)
    assert abs(sizes.var() / variance - 1) < 5 * np.sqrt(2 / DRAWS)
    counts = np.bincount(np.concatenate(cohorts), minlength=CLIENTS)
    spread = ((counts - DRAWS * RATIO) ** 2).sum() / (DRAWS * RATIO * (1 - RATIO))
    assert 1e-6 < stats.chi2.sf(spread, CLIENTS) < 1 - 1e-6


def test_poisson_clients_are_independent():
    present = np.zeros((DRAWS, 2), dtype=bool)
    for index, cohort in enumerate(draws(by_law(SamplingLaw.POISSON))):
        present[index] = np.isin([3, 4], cohort)
    both = int(present.all(axis=1).sum())
    assert 1e-6 < stats.binom.cdf(both, DRAWS, RATIO**2) < 1 - 1e-6


def test_fixed_size_is_exact_and_without_replacement():
    cohorts = draws(by_law(SamplingLaw.FIXED_SIZE))
    assert {len(cohort) for cohort in cohorts} == {20}
    assert all(len(np.unique(cohort)) == 20 for cohort in cohorts)
    counts = np.bincount(np.concatenate(cohorts), minlength=CLIENTS)
    assert abs(counts - DRAWS * RATIO).max() < 6 * np.sqrt(DRAWS * RATIO)


def test_full_takes_everybody():
    generator = stream(0, Purpose.SAMPLING, 1, 0)
    np.testing.assert_array_equal(by_law(SamplingLaw.FULL).draw(generator, 5, 1.0, 1), np.arange(5))


def test_no_two_streams_start_alike():
    names = [
        (seed, purpose, *indices)
        for seed in (0, 1, 2**31)
        for purpose in Purpose
        for count in (0, 1, 2)
        for indices in itertools.product((0, 1, 2, 70000), repeat=count)
    ]
    starts = {name: stream(name[0], name[1], *name[2:]).integers(2**62) for name in names}
    assert len(set(starts.values())) == len(names)


def test_a_stream_depends_on_its_name_only():
    one, two = (stream(3, Purpose.CLIENT, 5, 9).random(4) for _ in range(2))
    np.testing.assert_array_equal(one, two)
