"""The growing spectrum against plain convolution, and its stated error."""

import numpy as np
import pytest

from privplan.accounting.pld.convolution import convolved
from privplan.accounting.pld.running import Total
from privplan.accounting.pld.spectrum import Spectrum

POINTS = 4096


def rows(rounds, seed):
    generator = np.random.default_rng(seed)
    weights = generator.random((rounds, 60)) ** 4
    weights /= weights.sum(axis=1, keepdims=True)
    base = generator.integers(-20, 20, rounds)
    pattern = np.unique(np.concatenate([np.arange(40), 40 + np.cumsum(np.arange(20) + 1)]))
    return pattern, base, weights, generator.integers(1, 6, rounds).astype(float)


@pytest.mark.parametrize("rounds", [1, 5, 200])
def test_it_agrees_with_convolution_within_the_stated_errors(rounds):
    pattern, base, weights, counts = rows(rounds, rounds)
    spectrum = Spectrum(POINTS)
    for part in np.array_split(np.arange(rounds), min(rounds, 3)):
        spectrum.multiply(pattern, base[part], weights[part], counts[part])
    found, error = spectrum.inverse()
    placed = [
        ((one + pattern) % POINTS, row, count)
        for one, row, count in zip(base, weights, counts, strict=True)
    ]
    expected, other = convolved(placed, POINTS)
    assert np.linalg.norm(found - expected) <= error + other
    assert error <= 1e-9


def test_it_agrees_with_direct_convolution_of_a_few_rounds():
    pattern, base, weights, _ = rows(3, 1)
    spectrum = Spectrum(POINTS)
    spectrum.multiply(pattern, base, weights, np.ones(3))
    found, error = spectrum.inverse()
    dense = np.zeros((3, pattern[-1] + 1))
    dense[:, pattern] = weights
    expected = np.zeros(POINTS)
    total = np.convolve(np.convolve(dense[0], dense[1]), dense[2])
    np.add.at(expected, (np.arange(len(total)) + base.sum()) % POINTS, total)
    assert np.linalg.norm(found - expected) <= error


def test_most_frequencies_fade_and_few_transforms_are_made(monkeypatch):
    pattern, base, weights, _ = rows(2000, 7)
    calls = []
    rfft = np.fft.rfft
    monkeypatch.setattr(np.fft, "rfft", lambda *given: calls.append(1) or rfft(*given))
    spectrum = Spectrum(1 << 16)
    spectrum.multiply(pattern, base, weights, np.ones(2000))
    assert len(calls) < 100
    masses, error = spectrum.inverse()
    assert masses.sum() == pytest.approx(1.0, abs=1e-9)
    assert error < 1e-7


def test_a_total_does_not_drift():
    total = Total()
    for value in [1e16, 1.0, -1e16] * 1000:
        total.add(value)
    assert total.value == 1000.0
