"""Lint on the corpus: every broken file is found, no sound one is, and epsilon is right."""

from __future__ import annotations

import json
import math
from functools import cache

import dp_accounting
import pytest
from click.testing import CliRunner
from dp_accounting.pld import PLDAccountant

from privplan.cli import main
from privplan.contrib.lint.judge import ALARMS, Report, lint
from privplan.contrib.lint.reading import Options
from tests.contrib.lint.cases import BROKEN, FIXED, FOLDER, FULL, SOUND, Case
from tests.contrib.lint.derived import EDITS

TRUE = [case for case in (*BROKEN, *SOUND) if case.truth]


@cache
def report(case: Case) -> Report:
    return lint(str(case.path), case.of, Options(case.population, case.rounds, case.delta))


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.file)
def test_a_broken_file_is_found(case):
    assert tuple(alarm.code for alarm in report(case).alarms) == case.alarms
    assert report(case).exit_code == ALARMS


@pytest.mark.parametrize("case", SOUND, ids=lambda case: case.file)
def test_a_sound_file_has_no_alarm(case):
    assert report(case).alarms == ()
    assert report(case).exit_code == 0


@pytest.mark.parametrize("case", TRUE, ids=lambda case: case.file)
def test_epsilon_agrees_with_another_library(case):
    law, noise, ratio, rounds, delta = case.truth
    event = dp_accounting.GaussianDpEvent(noise / 2 if law == FIXED else noise)
    if law != FULL:
        event = dp_accounting.PoissonSampledDpEvent(ratio, event)
    theirs = PLDAccountant(value_discretization_interval=1e-2 if noise < 0.5 else 1e-3)
    reference = theirs.compose(event, rounds).get_epsilon(delta)
    row = report(case).rows[0]
    assert row.delta == delta
    if case.file.endswith(".log"):  # four decimals of the noise
        assert row.lower <= reference * 1.001
        assert row.upper >= reference * 0.999
    assert row.lower == pytest.approx(reference, rel=5e-3)
    assert row.lower <= row.upper <= row.lower * 1.005


def test_every_file_of_the_corpus_is_tested():
    files = {path for name in ("broken", "sound") for path in (FOLDER / name).iterdir()}
    cases = {case.path for case in (*BROKEN, *SOUND)}
    assert files == {path for path in cases if path.is_relative_to(FOLDER)}
    assert {path.name for path in cases - files} == set(EDITS)
    assert len(BROKEN) >= 20
    assert len(SOUND) >= 19


def test_the_setting_of_flower_beside_its_own_figures():
    loose, wrong = (
        report(next(c for c in (*BROKEN, *SOUND) if c.file == name))
        for name in ("flower_accounted.py", "flower_replace_one.py")
    )
    add_remove, replace_one = loose.rows
    assert 2.0351 <= add_remove.lower <= add_remove.upper <= 2.0353
    assert 2.0350 <= replace_one.lower <= replace_one.upper <= 2.1251
    assert round(loose.claims[0].epsilon, 2) == 30.17
    assert "the tight value is [2.03512" in " ".join(loose.notes)
    assert round(wrong.claims[0].epsilon, 3) == 0.845


def test_a_log_with_dropouts_has_wider_bounds():
    case = next(one for one in BROKEN if one.file == "flower_dropouts.log")
    noise = report(case).mechanisms[0].noise
    assert noise == pytest.approx((20 * 0.19995 / 10, 100 * 0.20005 / 10))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x.py", "--of", "flower"], "file: "),
        ([str(FOLDER / "cases.py"), "--of", "keras"], "of: must be one of "),
        ([str(FOLDER / "cases.py"), "--of", "pfl", "--delta", "2"], "delta: must be in"),
        ([str(FOLDER / "cases.py"), "--of", "pfl", "--rounds", "0"], "rounds: must be in"),
        ([str(FOLDER / "cases.py"), "--of", "pfl", "--population", "0"], "population: must be"),
    ],
)
def test_bad_input_is_one_line(words, said):
    done = CliRunner().invoke(main, ["lint", *words])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"privplan: {said}")
    assert done.stderr.count("\n") == 1


def test_the_command_line_and_json():
    case = next(one for one in SOUND if one.file == "flower_accounted.py")
    done = CliRunner().invoke(main, ["lint", str(case.path), "--of", "flower", "--format", "json"])
    assert done.exit_code == 0
    data = json.loads(done.stdout)
    assert data["format"] == "privplan.contrib.lint/1"
    assert data["rows"][0]["relation"] == "add_remove"
    assert data["mechanisms"][0]["law"] == "fixed_size"
    broken = next(one for one in BROKEN if one.file == "nvflare_percentile.json")
    done = CliRunner().invoke(main, ["lint", str(broken.path), "--of", "nvflare", "--rounds", "2",
                                     "--delta", "1e-5", "--format", "json"])  # fmt: skip
    assert done.exit_code == ALARMS
    assert json.loads(done.stdout)["rows"][0]["upper"] == "inf"


def test_draws_with_replacement_are_bounded_from_both_sides():
    case = next(one for one in BROKEN if one.file == "pfl_random.py")
    (row,) = report(case).rows
    event = dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(1.0))
    single = PLDAccountant().compose(event, 40).get_epsilon(1e-5)  # each user at most once
    assert 0.95 * single < row.lower < row.upper < 1.5 * single


def test_shuffled_batches_are_bounded_by_the_sum_and_by_full_participation():
    case = next(one for one in BROKEN if one.file == "opacus_shuffled.py")
    row = report(case).rows[0]
    full = PLDAccountant().compose(dp_accounting.GaussianDpEvent(1.1), 10).get_epsilon(1e-6)
    assert row.upper == pytest.approx(full, rel=1e-3)
    assert 0 < row.lower < math.inf
