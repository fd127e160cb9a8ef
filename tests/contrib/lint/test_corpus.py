"""Lint on the corpus: every broken file is found, no sound one is, and epsilon is right."""

import json
import math
import tempfile
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

from privplan.contrib.lint.judge import ALARMS, lint
from privplan.contrib.lint.reading import Options
from tests.command import answer, privplan

FOLDER = Path(__file__).parent

EDITS = {
    "flower_cohort.py": (
        "flower_more_noise.py", ("num_sampled_clients=50", "num_sampled_clients=200"),
    ),
    "flower_dropouts.log": ("flower_run.log", ("Received 100 results", "Received 20 results")),
    "flower_evaluate.py": ("flower_adaptive.py", ("evaluate=0.0", "evaluate=0.5")),
    "flower_local_rounds.py": (
        "flower_local_once.py", ("sensitivity=2.0", "sensitivity=1.0"),
        ("num_rounds=1)", "num_rounds=100)"),
    ),
    "flower_modulus.py": (
        "flower_secagg.py", ("fraction_fit=0.08", "fraction_fit=0.4"),
        ("num_sampled_clients=400", "num_sampled_clients=2000"),
    ),
    "flower_no_client_mod.py": (
        "flower_client_mod.py", ("from flwr.client.mod import fixedclipping_mod\n", ""),
        (", mods=[fixedclipping_mod]", ""),
    ),
    "flower_num_examples.py": (
        "flower_legacy_equal_weights.py", ("; every client reports one example.", "."),
        ("(self.net), 1, {}", "(self.net), len(self.trainloader.dataset), {}"),
    ),
    "flower_project_poisson.toml": ("flower_project.toml", ("epsilon = 30.17", "epsilon = 0.37")),
    "flower_replace_one.py": (
        "flower_accounted.py",
        ("NeighboringRelation.ADD_OR_REMOVE_ONE", "NeighboringRelation.REPLACE_ONE"),
        ("SamplingMethod.NO_AMPLIFICATION", "SamplingMethod.WITHOUT_REPLACEMENT"),
    ),
    "nvflare_svt.py": ("nvflare_svt.py", (", epsilon_release=0.4", "")),
    "nvflare_wrong_way.json": (
        "nvflare_local.json", ('"task_result_filters": [', '"task_data_filters": ['),
        ('"task_data_filters": []', '"task_result_filters": []'),
    ),
    "opacus_clients.py": (
        "opacus_poisson.py",
        ("DP-SGD on tabular", "Client-level privacy for hospitals with DP-SGD on tabular"),
    ),
    "opacus_delta.py": ("opacus_poisson.py", ("DELTA = 1e-6", "DELTA = 1e-3")),
    "opacus_half.py": (
        "opacus_poisson.py", ("optimizer = torch", "model = model.half()\noptimizer = torch"),
    ),
    "opacus_overrun.py": ("opacus_target.py", ("load(), 20)", "load(), 60)")),
    "opacus_shuffled.py": (
        "opacus_poisson.py",
        ("max_grad_norm=1.0,", "max_grad_norm=1.0,\n    poisson_sampling=False,"),
    ),
    "pfl_benchmark_small.yaml": ("pfl_benchmark.yaml", ("cohort_size: 400", "cohort_size: 50")),
    "pfl_local.py": (
        "pfl_poisson.py", ("CentrallyAppliedPrivacyMechanism(\n    Gaussian", "Gaussian"),
        ("clipping_bound=0.4)\n)", "clipping_bound=0.4)"),
    ),
    "pfl_noise_scale.py": ("pfl_poisson.py", ("delta=1e-6,", "delta=1e-6,\n    noise_scale=0.1,")),
}  # fmt: skip
"""The sound file, and what is replaced in it, the first time that it occurs."""


@cache
def _folder():
    return tempfile.TemporaryDirectory()


@dataclass(frozen=True)
class Case:
    """A file, the options, the alarms, and the mechanism that its releases really are.

    ``truth`` is (law, noise multiplier, ratio, rounds, delta), accounted by another library.
    """

    file: str
    alarms: tuple[str, ...] = ()
    population: int | None = None
    rounds: int | None = None
    delta: float | None = None
    truth: tuple[str, float, float, int, float] | None = None

    @property
    def of(self):
        return self.file.partition("_")[0]

    @cached_property
    def path(self):
        if self.alarms and self.file in EDITS:
            base, *pairs = EDITS[self.file]
            text = (FOLDER / "sound" / base).read_text()
            for old, new in pairs:
                assert old in text
                text = text.replace(old, new, 1)
            path = Path(_folder().name) / self.file
            path.write_text(text)
            return path
        return FOLDER / ("broken" if self.alarms else "sound") / self.file


FIXED, POISSON, FULL = "fixed_size", "poisson", "full"
ISSUE = (FIXED, 1.504, 0.02, 50, 6.98e-5)
RECORDS = (POISSON, 1.1, 0.025, 400, 1e-6)
LOCAL = 2 * 4.844805262605572  # sqrt(2 ln(1.25 / 1e-5)), times the sensitivity 2

BROKEN = (
    Case("flower_replace_one.py", ("understated",), truth=ISSUE),
    Case("flower_num_examples.py", ("private-weights",), 1000, None, 1e-5),
    Case("flower_cohort.py", ("cohort-mismatch",), 1000, None, 1e-4,
         (FIXED, 0.3, 0.05, 40, 1e-4)),
    Case("flower_fedadam.py", ("server-step",), 1000, None, 1e-5),
    Case("flower_evaluate.py", ("evaluation",), 500, None, 1e-5, (FIXED, 1.5, 0.1, 25, 1e-5)),
    Case("flower_no_client_mod.py", ("no-clipping",), 100, None, 1e-5),
    Case("flower_modulus.py", ("modulus",), 5000, None, 1e-5, (FIXED, 1.0, 0.4, 10, 1e-5)),
    Case("flower_local_rounds.py", ("understated",), truth=(FULL, 4.844805262605572, 1, 100, 1e-5)),
    Case("flower_project_poisson.toml", ("understated",), 6000, truth=ISSUE),
    Case("flower_dropouts.log", ("cohort-mismatch",)),
    Case("opacus_shuffled.py", ("shuffled",), 10000),
    Case("opacus_clients.py", ("record-level",), 10000, truth=RECORDS),
    Case("opacus_delta.py", ("delta",), 10000, truth=(*RECORDS[:4], 1e-3)),
    Case("opacus_half.py", ("half-precision",), 10000, truth=RECORDS),
    Case("opacus_overrun.py", ("overrun", "understated"), 10000),
    Case("pfl_local.py", ("local-noise", "understated"), 100_000),
    Case("pfl_random.py", ("with-replacement",), 2000, None, 1e-5),
    Case("pfl_noise_scale.py", ("noise-scale", "understated"), 100_000),
    Case("pfl_benchmark_small.yaml", ("noise-scale", "understated")),
    Case("nvflare_wrong_way.json", ("unfiltered",)),
    Case("nvflare_percentile.json", ("no-noise",)),
    Case("nvflare_svt.py", ("svt-release",), 8),
    Case("nvflare_reset.log", ("fresh-accountant",), 8),
)  # fmt: skip

SOUND = (
    Case("flower_accounted.py", truth=ISSUE),
    Case("flower_legacy_equal_weights.py", (), 1000, None, 1e-5, (FIXED, 2.0, 0.1, 30, 1e-5)),
    Case("flower_more_noise.py", (), 1000, None, 1e-4, (FIXED, 1.2, 0.05, 40, 1e-4)),
    Case("flower_adaptive.py", (), 500, None, 1e-5, (FIXED, 1.5, 0.1, 25, 1e-5)),
    Case("flower_client_mod.py", (), 100, None, 1e-5, (FIXED, 1.0, 0.2, 10, 1e-5)),
    Case("flower_secagg.py", (), 5000, None, 1e-5, (FIXED, 1.0, 0.08, 10, 1e-5)),
    Case("flower_local_once.py", truth=(FULL, LOCAL, 1, 1, 1e-5)),
    Case("flower_project.toml", (), 6000, truth=ISSUE),
    Case("flower_run.log", truth=(FIXED, 2.0, 0.1, 2, 1e-5)),
    Case("opacus_poisson.py", (), 10000, truth=RECORDS),
    Case("opacus_target.py", (), 10000),
    Case("opacus_run.yaml", (), 10000, truth=(POISSON, 1.3, 1 / 157, 785, 1e-5)),
    Case("pfl_poisson.py", (), 100_000),
    Case("pfl_direct.py", (), 2000, None, 1e-5, (FIXED, 2.0, 0.05, 40, 1e-5)),
    Case("pfl_benchmark.yaml"),
    Case("nvflare_local.json"),
    Case("nvflare_svt.py", (), 8),
    Case("nvflare_svt.log", (), 8),
)
TRUE = [case for case in (*BROKEN, *SOUND) if case.truth]


@cache
def report(case):
    return lint(str(case.path), case.of, Options(case.population, case.rounds, case.delta))


def named(name):
    return next(one for one in (*BROKEN, *SOUND) if one.file == name)


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


def test_the_setting_of_flower_beside_its_own_figures():
    names = "flower_accounted.py", "flower_replace_one.py"
    loose, wrong = (report(named(name)) for name in names)
    add_remove, replace_one = loose.rows
    assert 2.0351 <= add_remove.lower <= add_remove.upper <= 2.0353
    assert 2.0350 <= replace_one.lower <= replace_one.upper <= 2.1251
    assert round(loose.claims[0].epsilon, 2) == 30.17
    assert "the tight value is [2.03511, 2.03522]" in " ".join(loose.notes)
    assert round(wrong.claims[0].epsilon, 3) == 0.845


def test_a_log_with_dropouts_has_wider_bounds():
    noise = report(named("flower_dropouts.log")).mechanisms[0].noise
    assert noise == pytest.approx((20 * 0.19995 / 10, 100 * 0.20005 / 10))


def test_the_command_line_and_json():
    case = named("flower_accounted.py")
    data = json.loads(answer("lint", case.path, "--of", "flower", "--format", "json"))
    assert data["format"] == "privplan.contrib.lint/1"
    assert data["rows"][0]["relation"] == "add_remove"
    assert data["mechanisms"][0]["law"] == "fixed_size"
    broken = named("nvflare_percentile.json")
    options = ("--rounds=2", "--delta=1e-5", "--format=json")
    done = privplan("lint", broken.path, "--of", "nvflare", *options)
    assert done.exit_code == ALARMS
    assert json.loads(done.stdout)["rows"][0]["upper"] == "inf"


def test_draws_with_replacement_are_bounded_from_both_sides():
    (row,) = report(named("pfl_random.py")).rows
    event = dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(1.0))
    single = PLDAccountant().compose(event, 40).get_epsilon(1e-5)  # each user at most once
    assert 0.95 * single < row.lower < row.upper < 1.5 * single


def test_shuffled_batches_are_bounded_by_the_sum_and_by_full_participation():
    row = report(named("opacus_shuffled.py")).rows[0]
    full = PLDAccountant().compose(dp_accounting.GaussianDpEvent(1.1), 10).get_epsilon(1e-6)
    assert row.upper == pytest.approx(full, rel=1e-3)
    assert 0 < row.lower < math.inf
