"""Random numbers: streams of a seed and of a secret key, and the discrete Gaussian."""

import hashlib
import hmac
import math
import stat
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom, chisquare, kstest

from privplan.discrete_gaussian import (
    LARGEST,
    Uniform,
    discrete_gaussian,
    grid_of,
    scale_for,
)
from privplan.errors import InputError, UnsupportedError
from privplan.laws.sampling_law import SamplingLaw
from privplan.secure_stream import NoiseKey
from privplan.streams import fingerprint, private_seed, stream, streams

LAST = np.array([0, 1, 17, 99_999, 2**31, 2**32 - 1])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", [0, 5, 2**32 - 1, 2**32, 2**64 - 1, 2**130 + 7])
@pytest.mark.parametrize("before", [(), (7,), (2**33, 0)])
def test_many_streams_are_those_of_one_at_a_time(seed, before):
    for number, batch_stream in zip(
        LAST, streams(seed, 4, *before, clients=LAST), strict=True
    ):
        expected = stream(seed, 4, *before, int(number))
        for draw in range(2):
            assert (
                batch_stream.permutation(5).tolist() == expected.permutation(5).tolist()
            ), draw
            assert batch_stream.random(3).tolist() == expected.random(3).tolist()
            assert (
                batch_stream.integers(9, size=3).tolist()
                == expected.integers(9, size=3).tolist()
            )


KEY = NoiseKey(bytes(range(32)))


def test_a_stream_is_shake_256_of_its_own_key():
    stream_key = hmac.digest(KEY.content, b"privplan stream v1\n5,7,1", "sha256")
    first_block = hashlib.shake_256(stream_key + bytes(8)).digest(1024)
    next_block = hashlib.shake_256(stream_key + (1).to_bytes(8, "little")).digest(2048)
    expected = np.frombuffer(first_block + next_block, "<u8")
    assert (KEY.stream(5, 7, 1).words(384) == expected).all()
    for sizes in (
        (1, 0, 126, 200, 57),
        (1, 1, 382),
        (128, 1, 255),
        (130, 254),
        (127, 1, 256),
    ):
        pieces = KEY.stream(5, 7, 1)
        assert (
            np.concatenate([pieces.words(size) for size in sizes]) == expected
        ).all()
        again = KEY.stream(5, 7, 1)
        again.words(384)
        assert (pieces.words(3000) == again.words(3000)).all()
        assert pieces.fingerprint() == again.fingerprint()


def test_streams_of_other_names_keys_and_positions_differ():
    streams = [KEY.stream(5, 1, 12), KEY.stream(5, 11, 2), KEY.stream(51, 1, 2)]
    streams += [NoiseKey(bytes(32)).stream(5, 1, 12)]
    prints = {fingerprint(source) for source in streams}  # type: ignore[arg-type]
    streams[0].words(1)
    prints.add(streams[0].fingerprint())
    assert len(prints) == 5
    assert len({int(source.words(1)[0]) for source in streams}) == 4


def test_draws_follow_their_laws():
    stream = KEY.stream(1)
    assert kstest(stream.standard_normal(100_001), "norm").pvalue > 1e-3
    assert kstest(stream.random(100_000), "uniform").pvalue > 1e-3
    sizes = np.array([stream.binomial(40, 0.3) for _ in range(4000)])
    counts = np.bincount(sizes, minlength=41)[5:20]
    expected = binom.pmf(np.arange(5, 20), 40, 0.3) * 4000
    tail = (4000 - counts.sum(), 4000 - expected.sum())
    assert chisquare([*counts, tail[0]], [*expected, tail[1]]).pvalue > 1e-3
    chosen = np.concatenate([stream.choice(10, 3, replace=False) for _ in range(4000)])
    assert chisquare(np.bincount(chosen, minlength=10)).pvalue > 1e-3
    rounds = np.bincount(stream.integers(7, 70_000), minlength=7)
    assert chisquare(rounds, np.full(7, 10_000)).pvalue > 1e-3
    assert sorted(stream.permutation([3, 5, 9]).tolist()) == [3, 5, 9]


@pytest.mark.parametrize(
    "law", ["poisson", "fixed_size", "full", "random_allocation:4"]
)
def test_each_sampling_law_draws_from_a_secure_stream(law):
    stream = KEY.stream(3, 1, 0)
    drawn = SamplingLaw(law).law.draw(
        stream, 50, 1.0 if SamplingLaw(law).law.everyone else 0.2, 1
    )  # type: ignore[arg-type]
    assert len(set(drawn.tolist())) == len(drawn)
    assert sorted(drawn.tolist()) == drawn.tolist()
    assert {"fixed_size": 10, "full": 50}.get(law, len(drawn)) == len(drawn)


def test_what_a_stream_cannot_do_is_refused():
    with pytest.raises(UnsupportedError, match="has no method poisson"):
        KEY.stream(1).poisson(3)
    with pytest.raises(UnsupportedError, match="without replacement"):
        KEY.stream(1).choice(5, 2)
    with pytest.raises(InputError, match="size: must be in"):
        KEY.stream(1).choice(5, 6, replace=False)


def test_a_key_is_kept_in_a_file_of_its_own(tmp_path):
    path = tmp_path / "noise.key"
    key = NoiseKey.new()
    key.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert NoiseKey.load(path) == key
    assert NoiseKey.new() != key
    assert key.content.hex() not in repr(key) + key.commitment
    with pytest.raises(InputError, match="must be a new file"):
        key.save(path)
    path.chmod(0o640)
    with pytest.raises(InputError, match="accessible to its owner only"):
        NoiseKey.load(path)
    path.chmod(0o600)
    for content in ("", "00", "zz" * 32, "é" * 64, "00" * 33):
        path.write_text(content)
        with pytest.raises(InputError, match="must hold a key of 32 bytes"):
            NoiseKey.load(path)


class ChosenWords:
    """Words that a test chooses."""

    def __init__(self, *words):
        self.remaining = list(words)

    def words(self, count):
        chosen = self.remaining[:count]
        self.remaining = self.remaining[count:]
        return np.array(chosen, np.uint64)


@pytest.mark.parametrize(
    ("scale", "margin", "count"),
    [
        (1.0, 1e-10, 200_000),
        (1.7, 1e-10, 200_000),
        (6.25, 1e-10, 200_000),
        (2.5, 0.5, 5_000),
    ],
)
def test_small_scales_have_the_probabilities_of_the_definition(scale, margin, count):
    drawn = discrete_gaussian(
        KEY.stream(1, int(scale * 8), count), scale, count, margin=margin
    )
    reach = math.ceil(6 * scale)
    values = np.arange(-reach, reach + 1)
    expected = np.exp(-np.square(values) / (2 * scale**2))
    expected *= count / expected.sum()
    counts = np.array([(drawn == value).sum() for value in values])
    often = expected > 5
    tail = (count - counts[often].sum(), count - expected[often].sum())
    assert (
        chisquare([*counts[often], tail[0]], [*expected[often], tail[1]]).pvalue > 1e-3
    )


def test_the_exact_comparison_decides_as_the_floating_point_one():
    fast = discrete_gaussian(KEY.stream(2), 3.5, 2000)
    assert (discrete_gaussian(KEY.stream(2), 3.5, 2000, margin=0.3) == fast).all()


@pytest.mark.parametrize("std", [0.37, 1.0, 1.999, 1e-12, 4e5])
def test_large_scales_have_the_normal_law(std):
    grid = grid_of(std)
    scale = scale_for(std)
    assert 2**36 <= scale < 2**37 + 1
    assert Fraction(scale) ** 2 - 16 >= (Fraction(std) / Fraction(grid)) ** 2
    assert scale * grid == pytest.approx(std, rel=1e-15)
    drawn = discrete_gaussian(KEY.stream(3), scale, 50_000) * grid
    assert kstest(drawn / std, "norm").pvalue > 1e-3
    assert len(np.unique(drawn)) > 49_990


def test_a_uniform_number_is_compared_exactly():
    """Words around exp(-1) 2^128, which the series of e gives in whole numbers."""
    terms = sum(Fraction((-1) ** k, math.factorial(k)) for k in range(60))
    high, low = divmod(int(terms * 2**128), 2**64)
    assert Uniform(high - 1, ChosenWords()).below(Fraction(1))
    assert not Uniform(high + 1, ChosenWords()).below(Fraction(1))
    assert Uniform(high, ChosenWords(low - 1)).below(Fraction(1))
    assert not Uniform(high, ChosenWords(low + 1)).below(Fraction(1))
    assert Uniform(2**64 - 1, ChosenWords()).below(Fraction(0))
    assert not Uniform(1, ChosenWords()).below(Fraction(10**6))


@pytest.mark.parametrize("scale", [0, 0.5, -1, LARGEST * 2.0, math.nan, math.inf])
def test_a_scale_out_of_range_is_refused(scale):
    with pytest.raises(InputError, match="scale: must be in"):
        discrete_gaussian(KEY.stream(1), scale, 1)


def test_other_specs_and_groups_draw_other_cohorts_and_noise():
    seeds = [
        (1, "a", "strict"),
        (1, "a", "loose"),
        (1, "b", "strict"),
        (2, "a", "strict"),
    ]
    # Parts that are joined without a mark would make these the same.
    seeds += [(1, "a", ""), (11, "", "a")]
    assert len({private_seed(*seed) for seed in seeds}) == len(seeds)
    text = b"privplan private seed v3\n1\na\nstrict"
    assert private_seed(1, "a", "strict") == int(
        hashlib.sha256(text).hexdigest()[:32], 16
    )
