"""Tests behind a verdict: exact values, simulations, stated power, measured noise."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.random import default_rng
from scipy import stats

from benchmarks import power
from privplan.accounting.families import NOISE_FAMILIES, noise_p_value
from privplan.accounting.release import SamplingLaw
from privplan.evidence import measurement
from privplan.evidence import noise as noise_evidence
from privplan.laws.participation import participation_law
from privplan.record import CLIENTS
from privplan.verification.checks import (
    clipping,
    cohort_independence,
    cohort_p_values,
    measured_noise,
    noise_p_values,
    record,
    regenerated_cohorts,
    regenerated_noise,
    sampling,
    sums,
)
from privplan.verification.checks.check import EVIDENCE_FALSE_ALARM, FALSE_ALARM
from privplan.verification.checks.cohort_p_values import oddest_client
from privplan.verification.verify import judge, load_run
from tests.verification.honest_run import releases, write_run


def test_noise_p_value_is_the_two_sided_chi_square():
    statistic = 1100.0
    coordinates = 1000
    exact = 2 * min(
        stats.chi2.cdf(statistic, coordinates), stats.chi2.sf(statistic, coordinates)
    )
    assert noise_p_value(4 * statistic, 2.0, coordinates) == pytest.approx(
        exact, rel=1e-9
    )


@pytest.mark.parametrize("factor", [0.5, 0.95, 1.05, 2.0])
def test_wrong_noise_is_seen(factor):
    drawn = default_rng(1).normal(0, 1.5 * factor, 29_000)
    assert noise_p_value(float((drawn**2).sum()), 1.5, drawn.size) < FALSE_ALARM


def test_uneven_parts_are_seen_at_half_a_level():
    """Of one part, which is that of all rounds, too."""
    for share, lines in ((0.6, 0), (0.4, 2)):
        squares = stats.chi2.isf(share * FALSE_ALARM / 2, 1000)
        parts = [measured_noise._Part(squares, 1000, 1, 1)]
        uneven = measured_noise._uneven_parts(parts, "layer", FALSE_ALARM)
        assert len([*uneven]) == lines


def test_sums_are_tested_alone_and_together():
    def failing(*residuals):
        summed = []
        for round_, (squares, along) in enumerate(residuals):
            release = SimpleNamespace(
                round=round_,
                noise_std=2.0,
                dimension=1000,
                noise=NOISE_FAMILIES.get("gaussian"),
            )
            residual = SimpleNamespace(sum_squares=4 * squares, along_sum=2 * along)
            summed.append((release, residual))
        return [line.partition(":")[0] for line in sums._other_sums(summed)]

    assert failing((1000, 0.7), (1000, 0.7)) == []
    assert failing((600, 0.7), (1400, 0.7)) == ["round 0", "round 1"]
    assert failing((1000, 10), (1000, 0.7)) == ["round 0", "all rounds"]
    assert failing((820, 0.7), (820, 0.7)) == ["all rounds"]


def test_a_sum_is_at_most_as_long_as_its_updates_together():
    for shares_of_sum, expected in (
        ([(3, 1, 0.5), (2, None, 1.0)], 4.0),
        ([(3, 1, 0.5), (None, 0, 0.5)], None),
        ([(3, 1, None)], None),
    ):
        shares = [
            SimpleNamespace(cohort=cohort, canaries=canaries, largest_norm=norm)
            for cohort, canaries, norm in shares_of_sum
        ]
        assert clipping.longest_sum(SimpleNamespace(shares=shares)) == expected


def test_a_crowded_cell_and_equal_values_are_seen():
    for crowd, lines in ((0, 0), (60, 2)):
        cells = np.full(measured_noise.CELLS, 100)
        cells[:2] += [crowd, -crowd]
        close = crowd * 100
        noise = SimpleNamespace(distributed=cells.sum(), close=close, cells=cells)
        together = measured_noise._unlike_normal_together
        assert len([*together([(None, noise)], FALSE_ALARM)]) == lines


def test_tails_and_energy_are_seen():
    size = 10**6
    expected = size * measured_noise.tail_probabilities(measured_noise.TAILS)
    for deviations, lines in ((0, 0), (9, 1)):
        noise = SimpleNamespace(
            distributed=size,
            coordinates=size,
            tails=np.rint(expected + deviations * np.sqrt(expected)),
            block_squares=[size + deviations * math.sqrt(2 * size)],
        )
        for test in (measured_noise._unlikely_tails, measured_noise._unlikely_energy):
            assert len([*test([(None, noise)], FALSE_ALARM)]) == lines


def test_sums_with_a_residual_are_bounded():
    noise = SimpleNamespace(noisy=True)
    for residual, count in (("a", 1), (None, 0)):
        release = SimpleNamespace(unit="client", residual=residual, noise=noise)
        summed = clipping._summed(SimpleNamespace(numbered=[(0, release)]))
        assert len(summed) == count


def test_cohorts_of_turns_are_tested_by_turn(monkeypatch):
    law = SamplingLaw("cyclic_poisson:3").law
    cohorts = [(round_, law.places(round_, 30)[:5]) for round_ in range(1, 61)]
    monkeypatch.setattr(cohort_independence, "_cohorts", lambda *run: cohorts)
    monkeypatch.setattr(cohort_independence, "_wrong_ratio", lambda *run: [])
    run = SimpleNamespace(clients={"all": 30})
    group = SimpleNamespace(name="all")
    chosen = cohort_independence._unlikely_cohorts(run, group, law, FALSE_ALARM)
    assert "all, rounds 1, 4, ..." in next(chosen)


@pytest.mark.parametrize(("law", "count"), [("full", 0), ("poisson", 1)])
def test_groups_in_which_everybody_takes_part_draw_nobody(law, count):
    plan = SimpleNamespace(groups=["all"], law_of=lambda group: SamplingLaw(law))
    run = SimpleNamespace(plan=plan)
    assert len(cohort_independence._drawing_groups(run)) == count


def test_honest_noise_passes():
    rng = default_rng(2)
    values = [
        noise_p_value(float((rng.normal(size=500) ** 2).sum()), 1.0, 500)
        for _ in range(500)
    ]
    assert min(values) > 1e-4
    assert 0.4 < np.mean(values) < 0.6  # uniform when honest


@pytest.mark.parametrize(("value", "lines"), [(3e-5, 0), (8.0, 1)])
def test_a_projection_that_rounds_to_zero_is_no_fault(value, lines):
    """One honest release of 600 has a coordinate so near 0 among its 40."""
    z = default_rng(5).normal(size=40)
    projections = measurement.projected(z)
    projections[7] = value
    measured = SimpleNamespace(
        coordinates=40, projections=np.round(projections, 4).tolist()
    )
    level = EVIDENCE_FALSE_ALARM / 4
    one_release = [(SimpleNamespace(round=1), measured)]
    problems = measured_noise._uneven_projections(one_release, 40, level)
    assert sum("unequal noise" in line for line in problems) == lines


def test_no_noise_where_noise_was_recorded_fails():
    assert noise_p_value(0.0, 1.5, 100) == 0.0
    assert noise_p_value(1.0, 0.0, 100) == 0.0


def test_a_client_who_is_always_there_is_named_with_its_chance():
    counts = default_rng(5).binomial(50, 0.02, 2000)
    counts[77] = 50
    client, chance = oddest_client(counts, participation_law({0.02: 50}), 2000)
    assert client == 77
    assert chance == pytest.approx(2 * 2000 * 0.02**50)
    assert oddest_client(np.array([51]), participation_law({0.02: 50}), 1) == (0, 0.0)


@pytest.mark.parametrize("fixed", [False, True])
def test_the_oddest_client_s_chance_is_a_bound_on_honest_false_alarms(fixed):
    """Poisson cohorts, and cohorts of one size, whose clients depend on each other."""
    rng = default_rng(6)
    clients = 40
    rounds = 20
    size = 8
    law = participation_law({size / clients: rounds})
    chances = []
    for _ in range(300):
        draws = rng.random((rounds, clients))
        limit = np.sort(draws, axis=1)[:, size - 1 : size] if fixed else size / clients
        chances.append(oddest_client((draws <= limit).sum(0), law, clients)[1])
    for level in (0.5, 0.2, 0.05):
        assert np.mean(np.array(chances) < level) <= level + 3 * np.sqrt(level / 300)


DOCS = Path(__file__).parents[2] / "docs" / "reference" / "checks.md"


def _measured(z, std=2.0, round_=1):
    return measurement.measure_noise(z * std, std, round_=round_, index=0, sum_norm=1.0)


def test_measurements_agree_with_independent_implementations():
    z = default_rng(1).standard_normal(1001)
    measured = _measured(z)
    assert measured.ks == pytest.approx(stats.kstest(z, "norm").statistic, rel=1e-8)
    assert measured.tails == tuple(
        (np.abs(z) > limit).sum() for limit in noise_evidence.TAILS
    )
    assert measured.cells == tuple(
        np.histogram(stats.norm.cdf(z), np.linspace(0, 1, 33))[0]
    )
    shifted = [float(z[shift:] @ z[:-shift]) for shift in range(1, 1001)]
    assert measured.lag == 1 + int(np.abs(shifted).argmax())
    assert measured.autocorrelation == pytest.approx(shifted[measured.lag - 1])
    assert sum(measured.block_squares) == pytest.approx(float(z @ z))


def test_projections_keep_inner_products_of_the_identity():
    """The 128 projections of unit vectors are orthonormal: P P^T is the identity."""
    rows = np.array([measurement.project(unit) for unit in np.eye(300)]).T
    assert np.allclose(rows @ rows.T, np.eye(128))


def test_the_parts_of_a_long_vector_are_independent_normals(monkeypatch):
    """Each part is a linear map A of z: A A^T is the identity, but for sums of none."""
    monkeypatch.setattr(noise_evidence, "SAMPLE", 64)
    monkeypatch.setattr(measurement, "SAMPLE", 64)
    monkeypatch.setattr(measurement, "SAMPLE_BLOCK", 8)
    units = np.eye(300)
    sample = np.array([measurement.measured_parts(unit, "a")[0] for unit in units]).T
    vector = np.array([measurement.measured_parts(unit, "a")[1] for unit in units]).T
    rows = np.array([measurement.projected(unit) for unit in units]).T
    assert sample.shape == (64, 300)
    assert np.array_equal(sample @ sample.T, np.eye(64))
    # The sample has whole blocks.
    assert np.all(np.diff(sample.argmax(1).reshape(8, 8) % 300) % 300 == 1)
    is_kept = np.diag(vector @ vector.T).round(9)
    assert np.allclose(vector @ vector.T, np.diag(is_kept))
    assert set(is_kept) == {0.0, 1.0}
    assert is_kept[64:].sum() == sum(
        not sample[:, start : start + 5].any() for start in range(0, 300, 5)
    )
    assert np.allclose(rows @ rows.T, np.eye(60))
    reached = np.zeros(300)
    # Each coordinate is as likely in the sample.
    for number in range(400):
        reached[measurement.measured_parts(np.arange(300), str(number))[0]] += 1
    assert stats.chisquare(reached).pvalue > 1e-6


def _on_grid(z):
    return (z * 1000).round() / 1000


def _averaged(z):
    return (z + np.roll(z, 1)) / np.sqrt(2)


def _release(number):
    return SimpleNamespace(
        round=number, residual=None, shares=[SimpleNamespace(group="all")]
    )


LONG_FAULTS = {
    "law": (
        measured_noise.unlike_normal,
        lambda z, rng: rng.laplace(0, 0.5**0.5, len(z)),
    ),
    "grid": (measured_noise.unlike_normal, lambda z, rng: _on_grid(z)),
    "truncation": (
        measured_noise.unlike_normal,
        lambda z, rng: np.where(abs(z) > 3, z / 4, z),
    ),
    "scale": (measured_noise.unlike_normal, lambda z, rng: 0.993 * z),
    "block": (
        measured_noise.uneven,
        lambda z, rng: np.where(np.arange(len(z)) < 900, 0.0, z),
    ),
    "repetition": (
        measured_noise.dependent,
        lambda z, rng: np.roll(np.resize(z, 3 * len(z) // 4), 9),
    ),
    "neighbours": (measured_noise.dependent, lambda z, rng: _averaged(z)),
}
"""Checks, and faults of noise [n] of the recorded deviation, all but the block in each part."""


@pytest.mark.parametrize(("factor", "count"), [(0.9, 0), (1.1, 1)])
def test_equal_values_of_a_release_are_seen_at_half_its_level(factor, count):
    size = 3000
    chance = noise_p_values.close_pairs_p_value(20, [size])
    assert 0 < chance < FALSE_ALARM
    noise = SimpleNamespace(distributed=size, ks=0.0, close=20)
    level = 2 * factor * chance
    lines = measured_noise._unlike_normal_alone([(_release(1), noise)], level)
    assert len([*lines]) == count


@pytest.mark.parametrize(("factor", "count"), [(0.9, 0), (1.1, 1)])
def test_one_of_all_cells_is_crowded_at_its_share_of_half_the_level(factor, count):
    cells = np.full(measured_noise.CELLS, 100)
    cells[:2] += [60, -60]
    total = int(cells.sum())
    share = np.full(len(cells), 1 / len(cells))
    chance = noise_p_values.counts_p_values(cells, total, share).min()
    noise = SimpleNamespace(distributed=total, close=0, cells=cells)
    level = 2 * len(cells) * factor * chance
    lines = measured_noise._unlike_normal_together([(_release(1), noise)], level)
    assert len([*lines]) == count


def test_releases_of_several_lengths_share_the_level(monkeypatch):
    shares = []

    def none_within(measured, level):
        return []

    def shared(measured, level):
        shares.append((len(measured), level))
        return []

    monkeypatch.setattr(measured_noise, "_dependent_within", none_within)
    monkeypatch.setattr(measured_noise, "_dependent_pairs", shared)
    monkeypatch.setattr(measured_noise, "_dependent_lags", none_within)
    measured = [
        (_release(round_), SimpleNamespace(coordinates=coordinates))
        for round_, coordinates in enumerate((10, 20, 20), start=1)
    ]
    assert [*measured_noise.dependent(measured, 0.12)] == []
    assert [count for count, _ in shares] == [1, 2]
    assert [level for _, level in shares] == pytest.approx([0.01, 0.02])


@pytest.mark.parametrize(("factor", "count"), [(1 + 5e-6, 0), (1 + 2e-5, 1)])
def test_a_sum_may_be_longer_by_rounding_only(factor, count):
    release = SimpleNamespace(
        round=1,
        unit="client",
        residual="measured",
        noise=SimpleNamespace(noisy=True),
        shares=[
            SimpleNamespace(group="all", cohort=4, canaries=0, largest_norm=0.5),
        ],
    )
    spec = SimpleNamespace(rounds=1, mixture_of=lambda round_: (1.0,))
    run = SimpleNamespace(plan=SimpleNamespace(spec=spec), numbered=[(0, release)])
    measured = SimpleNamespace(sum_norm=2.0 * factor)
    assert len([*clipping._too_long(run, {(1, 0): measured})]) == count


@pytest.mark.parametrize(("norm", "count"), [(12.14, 0), (12.16, 1)])
def test_an_update_is_as_long_as_its_clipped_records_allow(norm, count):
    """Two steps at momentum 0.5 reach 1.5 times 8 + (8 + 92) / 1000, which is 12.15."""
    share = SimpleNamespace(group="all", cohort=4, clip_bound=2.0)
    release = SimpleNamespace(
        round=1, steps=2, shares=[share], noise_sum_squares=92.0**2
    )
    residual = SimpleNamespace(sum_squares=norm**2)
    assert len([*sums._too_long(release, residual, 0.5)]) == count


def test_cohorts_of_one_half_are_seen():
    level = FALSE_ALARM
    spread = [(1, [*range(0, 100, 5)])]
    assert [*cohort_independence._one_half(spread, 100, level)] == []
    first_half = [(3, [*range(1, 40, 4), *range(0, 40, 4)])]
    [line] = cohort_independence._one_half(first_half, 100, level)
    assert line == "round 3: 20 of 20 participants are of the first half"
    even = [(4, [*range(10, 90, 4)])]
    [line] = cohort_independence._one_half(even, 100, level)
    assert line == "round 4: 20 of 20 participants are of even positions"


@pytest.mark.parametrize(
    ("unit", "is_keyed", "is_of_seed"),
    [("client", False, True), ("client", True, False), ("record", False, False)],
)
def test_only_a_seed_explains_unlikely_cohorts(unit, is_keyed, is_of_seed):
    """A key may have been chosen for its cohorts."""
    run = SimpleNamespace(
        plan=SimpleNamespace(spec=SimpleNamespace(unit=unit)),
        keyed=is_keyed,
        once=lambda check: SimpleNamespace(passed=True),
    )
    assert regenerated_cohorts.cohorts_are_of_seed(run) == is_of_seed


@pytest.mark.parametrize(("unit", "word"), [("client", "cohort"), ("record", "batch")])
def test_sizes_are_of_cohorts_or_of_batches(unit, word):
    spec = SimpleNamespace(unit=unit)
    plan = SimpleNamespace(groups=[], law_of=dict, spec=spec)
    run = SimpleNamespace(plan=plan, ledger=SimpleNamespace(records=[]))
    check = sampling.sampling(run)
    assert check.passed
    assert f"{word} sizes fit" in check.reason


@pytest.mark.parametrize(
    ("change", "partition", "count"),
    [
        (lambda parts: parts, "iid", 0),
        (lambda parts: parts[::-1], "iid", 1),
        # Clients that data name have turns by their names.
        (lambda parts: parts[::-1], CLIENTS, 0),
        (lambda parts: (*parts[:-1], parts[-1] - 1), CLIENTS, 1),
        (lambda parts: (*parts, 0), CLIENTS, 1),
    ],
)
def test_parts_of_a_record_are_those_of_the_law(change, partition, count):
    law = SamplingLaw("cyclic_poisson:3").law
    seated, _ = law.seated("all", range(100))
    assert len(set(seated.parts)) > 1
    plan = SimpleNamespace(
        groups=[SimpleNamespace(name="all", clients=100)],
        law_of=lambda group: SimpleNamespace(law=law),
    )
    recorded = {"all": change(seated.parts)}
    run = SimpleNamespace(
        plan=plan, record=SimpleNamespace(parts=recorded, partition=partition)
    )
    assert len([*record._parts(run)]) == count


def test_recorded_and_released_noise_is_that_of_the_stream():
    drawn = np.array([3.0, 4.0])

    def differs(squares, residual_squares):
        residual = SimpleNamespace(sum_squares=residual_squares)
        release = SimpleNamespace(
            noise_sum_squares=squares,
            residual=residual,
            shares=[SimpleNamespace(cohort=1, canaries=0, largest_norm=1.0)],
        )
        return regenerated_noise._difference(release, None, drawn, "seed")

    assert differs(None, 25.0) is None
    assert differs(25.0, 25.0) is None
    assert differs(100.0, 25.0) == (
        "the recorded noise is not the seed's, its norm 2 times as large"
    )
    assert differs(25.0, 100.0) == (
        "the released noise is 2 times as large as the seed's"
    )


@pytest.mark.parametrize("name", ["none", *LONG_FAULTS])
def test_faults_of_long_vectors_are_seen(name):
    rng = default_rng(8)
    n = 2 * noise_evidence.SAMPLE + 1
    z = rng.standard_normal(n)
    _, fault = LONG_FAULTS.get(name, (None, lambda z, rng: z))
    measured = _measured(np.resize(fault(z, rng), n))
    assert measured.fault is None
    assert measured.sample == noise_evidence.SAMPLE
    release = _release(1)
    failed_checks = {
        check
        for check, _ in LONG_FAULTS.values()
        if [*check([(release, measured)], 1e-4)]
    }
    assert (
        LONG_FAULTS[name][0] in failed_checks if name != "none" else not failed_checks
    )


def test_noise_of_a_long_vector_that_is_used_again_or_not_the_seed_s_is_seen():
    z = default_rng(9).standard_normal((4, 2 * noise_evidence.SAMPLE + 1))
    z[3] = z[0] + 0.1 * z[3]
    releases = [_release(number) for number in range(1, 5)]
    lines = [
        _measured(vector, round_=round_) for round_, vector in enumerate(z, start=1)
    ]
    [*faults] = measured_noise.dependent(list(zip(releases, lines, strict=True)), 1e-4)
    assert faults[0].startswith("rounds 1 (all) and 4 (all): correlation")
    assert [
        *measured_noise.dependent(list(zip(releases[:3], lines, strict=False)), 1e-4)
    ] == []
    assert np.abs(measurement.projected(z[1]) - lines[1].projections).max() < 1e-4
    assert np.abs(measurement.projected(z[2]) - lines[1].projections).max() > 0.5


@pytest.mark.slow
def test_p_values_are_upper_bounds_and_not_trivial():
    """Simulated frequencies of p-values below a level never exceed it beyond chance."""
    rng = default_rng(2)
    runs = 1_500
    n = 60
    x, y = rng.standard_normal((2, runs, n))
    products = noise_p_values.product_p_values((x * y).sum(1), n)
    lagged = noise_p_values.lagged_p_values((x * np.roll(x, n // 2, 1)).sum(1), n)
    for p_values in (products, lagged):
        assert (p_values < 0.05).mean() < 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)
        assert (p_values < 0.3).mean() > 0.01
    ks = [
        noise_p_values.ks_p_value(stats.kstest(row, "norm").statistic, n)
        for row in x[:1000]
    ]
    assert 0.02 < np.mean(np.array(ks) < 0.1) < 0.1 + 3 * np.sqrt(0.09 / 1000)


def test_overlap_bound_covers_the_exact_hypergeometric_law():
    exact = stats.hypergeom(100, 30, 25)
    for overlap in (0, 2, 15, 20):
        two_sided = 2 * min(exact.cdf(overlap), exact.sf(overlap - 1))
        assert cohort_p_values.hypergeometric_p_value(
            overlap, 100, 30, 25
        ) == pytest.approx(two_sided)
        bound = cohort_p_values.overlaps_p_value([overlap], [(30, 25)], 100)
        assert two_sided <= bound * (1 + 1e-9)
        assert bound < 30 * two_sided + 1e-12


def test_common_clients_and_neighbours_are_those_counted_one_by_one():
    rng = default_rng(1)
    n = 23
    drawn = [
        tuple(sorted(rng.choice(n, size, replace=False).tolist()))
        for size in (9, 5, n, 0)
    ]
    for distance in (1, 2, 3):
        # Pairs of which no two have a client in common.
        lower_clients = [
            client for client in range(n - distance) if client // distance % 2 == 0
        ]
        neighbours = 0
        for cohort in drawn:
            for client in lower_clients:
                neighbours += client in cohort and client + distance in cohort
        mean = sum(
            len(lower_clients) * len(cohort) * (len(cohort) - 1) / (n * (n - 1))
            for cohort in drawn
        )
        bound = 1.0
        if neighbours > mean:
            excess = neighbours - mean - neighbours * np.log(neighbours / mean)
            bound = np.exp(excess)
        assert cohort_p_values.neighbours_p_value(drawn, n, distance) == pytest.approx(
            bound
        )
    assert not list(cohort_independence.same_cohort([*enumerate(drawn, 1)], n, 1e-4))
    [same] = cohort_independence.same_cohort(
        [*enumerate([drawn[0], drawn[0], ()], 1)], n, 1e-4
    )
    assert same.startswith("rounds 1 and 2 have 9 clients in common")


def test_power_of_a_smaller_deviation_agrees_with_a_simulation():
    count = 20_000
    rng = default_rng(3)
    squares = 0.97**2 * rng.chisquare(count, 4_000)
    rejected = noise_p_values.squares_p_values(squares, np.full(4_000, count))
    rejected_share = float((rejected < EVIDENCE_FALSE_ALARM / 5).mean())
    assert 0.1 < rejected_share < 0.99
    assert power.scale(0.97, count) == pytest.approx(rejected_share, abs=0.03)


def test_power_of_a_correlation_agrees_with_a_simulation():
    rng = default_rng(5)
    rounds = 20
    rho = 0.2
    runs = 600
    fresh = rng.standard_normal((runs, rounds, 128))
    # Autoregressive: the correlation at lag 1 is rho.
    for number in range(1, rounds):
        fresh[:, number] = (
            rho * fresh[:, number - 1] + np.sqrt(1 - rho**2) * fresh[:, number]
        )
    products = (fresh[:, 1:] * fresh[:, :-1]).sum((1, 2))
    level = EVIDENCE_FALSE_ALARM / 4 / (3 * 8 + 3)
    rejected_share = float(
        (noise_p_values.lagged_p_values(products, rounds * 128) < level).mean()
    )
    assert 0.1 < rejected_share < 0.99
    assert power.correlation(rho, rounds, 3) == pytest.approx(rejected_share, abs=0.08)


def test_the_docs_hold_the_computed_power():
    assert power.power_markdown() == DOCS.read_text().split("<!-- power -->")[1].strip()


def test_a_damaged_line_is_named(tmp_path):
    lines = [_measured(np.arange(-5.0, 6), round_=number).line for number in (1, 2)]
    path = tmp_path / noise_evidence.NOISE_EVIDENCE
    path.write_text("".join(lines))
    assert noise_evidence.read_noise_evidence(tmp_path)[1] is None
    for text, line in (
        (lines[0] + "{}\n", 2),
        (lines[0] * 2, 2),
        (lines[0][:-5], 1),
        ("\x00\n", 1),
    ):
        path.write_text(text)
        lines_read, fault = noise_evidence.read_noise_evidence(tmp_path)
        assert f"line {line} of noise.jsonl" in fault
        assert len(lines_read) == line - 1
    assert noise_evidence.read_noise_evidence(tmp_path / "absent") == ({}, None)


def test_a_damaged_line_fails_all_checks_of_it(tmp_path):
    write_run(tmp_path)
    (tmp_path / noise_evidence.NOISE_EVIDENCE).write_text("{}\n")
    checks = {check.name: check for check in judge(load_run(tmp_path), 0).checks}
    for name in (
        "noise distribution",
        "noise coverage",
        "noise independence",
        "sums bounded",
    ):
        assert checks[name].failed
        assert "line 1 of noise.jsonl" in checks[name].reason


def test_absent_evidence_is_named_and_decides_nothing(tmp_path):
    write_run(tmp_path)
    checks = {check.name: check for check in judge(load_run(tmp_path), 0).checks}
    for name, missing in (
        ("noise distribution", "measurements of the noise (60 of 60)"),
        ("noise coverage", "measurements of the noise (60 of 60)"),
        ("noise independence", "measurements of the noise (60 of 60)"),
        ("sums bounded", "norms of the sums (60 of 60)"),
        ("noise regenerated", "the version of numpy in the record"),
        ("cohorts regenerated", "the version of numpy in the record"),
    ):
        assert checks[name].reason.endswith(f"missing: {missing}"), checks[name]


def test_measurements_of_another_release_are_refused(tmp_path):
    plan = write_run(tmp_path)
    path = tmp_path / noise_evidence.NOISE_EVIDENCE
    rng = default_rng(6)
    index = {}
    lines = []
    for release in releases(plan):
        number = index.get(release.round, -1) + 1
        index[release.round] = number
        noise = rng.normal(0, release.noise_std, release.dimension)
        where = {"round_": release.round, "index": number}
        lines.append(
            measurement.measure_noise(
                noise, release.noise_std, **where, sum_norm=1.0
            ).line
        )
    path.write_text("".join(lines))
    checks = {check.name: check for check in judge(load_run(tmp_path), 0).checks}
    for name in ("noise distribution", "noise coverage", "noise independence"):
        assert not checks[name].passed
        assert (
            checks[name].reason
            == "round 1: the measured noise is not that of the release"
        )
