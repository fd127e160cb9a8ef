"""Interrupted attacks go on, and end with the numbers of uninterrupted ones."""

import pytest
import torch

from privplan.errors import InputError
from privplan.sweeps import InterruptedSweepError
from simulate.attacks import sweep as sweeps
from simulate.attacks.settings import PlanRound
from simulate.attacks.sweep import Case, sweep
from simulate.attacks.view import Options
from simulate.data.registry import load
from tests.simulate.attacks.test_hyperfl_attacks import _plan


@pytest.fixture(scope="module")
def dense():
    """A plan whose network has a dense layer in its body."""
    return _plan("mlp-digits", 2410)


def _cases(plan, attack, method="HyperFL"):
    return [Case(attack, PlanRound(plan, method, load("digits"), images=3))]


def _stop_at(share):
    """A report of progress that ends the attack after a share of it."""

    def stop(done, total):
        if done >= share * total:
            raise KeyboardInterrupt

    return stop


def _images(results):
    return torch.cat([torch.cat(result.images) for result in results])


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["ig", "ig-paper", "tailored"])
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_killed_attack_ends_with_the_same_numbers(
    attack, share, dense, tmp_path, monkeypatch
):
    monkeypatch.setattr(sweeps, "PAUSE", 0.0)
    monkeypatch.setattr(sweeps, "CHUNK", 2)
    options = Options(steps=10, seed=1)
    uninterrupted = sweep(_cases(dense, attack), options)
    with pytest.raises(InterruptedSweepError, match="the same command resumes"):
        sweep(_cases(dense, attack), options, _stop_at(share), tmp_path)
    assert list(tmp_path.glob("unfinished-*.pt"))
    shares = []
    resumed = sweep(
        _cases(dense, attack),
        options,
        lambda done, total: shares.append(done / total),
        tmp_path,
    )
    assert min(shares[1:]) > share - 0.1  # nothing that was done is done again
    assert torch.equal(_images(resumed), _images(uninterrupted))
    assert [result.numbers for result in resumed] == [
        result.numbers for result in uninterrupted
    ]
    assert not list(tmp_path.glob("unfinished-*.pt"))


def test_a_damaged_file_of_steps_begins_the_chunk_again(dense, tmp_path, monkeypatch):
    monkeypatch.setattr(sweeps, "PAUSE", 0.0)
    options = Options(steps=6)
    uninterrupted = sweep(_cases(dense, "ig"), options)
    with pytest.raises(InterruptedSweepError):
        sweep(_cases(dense, "ig"), options, _stop_at(0.5), tmp_path)
    [path] = tmp_path.glob("unfinished-*.pt")
    path.write_bytes(path.read_bytes()[:100])
    resumed = sweep(_cases(dense, "ig"), options, folder=tmp_path)
    assert torch.equal(_images(resumed), _images(uninterrupted))


def test_finished_attacks_are_kept_and_other_settings_refused(
    dense, tmp_path, monkeypatch
):
    results = sweep(_cases(dense, "closed"), Options(), folder=tmp_path)
    monkeypatch.setattr(sweeps, "_attacked", None)  # a second attack would call it
    again = sweep(_cases(dense, "closed"), Options(), folder=tmp_path)
    assert torch.equal(_images(again), _images(results))
    with pytest.raises(InputError, match="results of other settings"):
        sweep(_cases(dense, "closed"), Options(seed=9), folder=tmp_path)
