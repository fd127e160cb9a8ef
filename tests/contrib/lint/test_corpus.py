"""Lint on the corpus: every broken file is found, and no sound one is."""

import json
import tempfile
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

from privplan.contrib.lint.judge import lint
from privplan.contrib.lint.reading import ALARMS, Options
from tests.command import answer, privplan

FOLDER = Path(__file__).parent

EDITS = {
    "flower_cohort.py": (
        "flower_more_noise.py", ("num_sampled_clients=50", "num_sampled_clients=200"),
    ),
    "flower_evaluate.py": ("flower_adaptive.py", ("evaluate=0.0", "evaluate=0.5")),
    "flower_evaluate_default.py": ("flower_adaptive.py", ("fraction_evaluate=0.0, ", "")),
    "flower_available_default.py": ("flower_adaptive.py", (", min_available_clients=500", "")),
    "flower_local_rounds.py": ("flower_local_once.py", ("sensitivity=2.0", "sensitivity=1.0")),
    "flower_no_client_mod.py": (
        "flower_client_mod.py", ("from flwr.client.mod import fixedclipping_mod\n", ""),
        (", mods=[fixedclipping_mod]", ""),
    ),
    "nvflare_svt.py": ("nvflare_svt.py", (", epsilon_release=0.4", "")),
    "nvflare_wrong_way.json": (
        "nvflare_local.json", ('"task_result_filters": [', '"task_data_filters": ['),
        ('"task_data_filters": []', '"task_result_filters": []'),
    ),
    "opacus_delta.py": ("opacus_poisson.py", ("DELTA = 1e-6", "DELTA = 1e-3")),
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
    """A file, its alarm, and the number of units."""

    file: str
    alarm: str = ""
    population: int | None = None

    @property
    def framework(self):
        return self.file.partition("_")[0]

    @cached_property
    def path(self):
        if self.alarm and self.file in EDITS:
            base, *pairs = EDITS[self.file]
            text = (FOLDER / "sound" / base).read_text()
            for old, new in pairs:
                assert old in text
                text = text.replace(old, new, 1)
            path = Path(_folder().name) / self.file
            path.write_text(text)
            return path
        return FOLDER / ("broken" if self.alarm else "sound") / self.file


# Traps of which a file alone shows too little for an alarm.
TO_LOOK_AT = [
    "connected-ratio",
    "evaluation",
    "local-noise",
    "no-clipping",
    "no-noise",
    "unfiltered",
    "with-replacement",
]

BROKEN = (
    Case("flower_cohort.py", "cohort-mismatch", 1000),
    Case("flower_fedadam.py", "server-step", 1000),
    Case("flower_evaluate.py", "evaluation", 500),
    Case("flower_evaluate_default.py", "evaluation", 500),
    Case("flower_available_default.py", "connected-ratio"),
    Case("flower_no_client_mod.py", "no-clipping", 100),
    Case("flower_local_rounds.py", "sensitivity"),
    Case("opacus_shuffled.py", "shuffled", 10000),
    Case("opacus_delta.py", "delta", 10000),
    Case("pfl_local.py", "local-noise", 100_000),
    Case("pfl_random.py", "with-replacement", 2000),
    Case("pfl_noise_scale.py", "noise-scale", 100_000),
    Case("pfl_benchmark_small.yaml", "noise-scale"),
    Case("nvflare_wrong_way.json", "unfiltered"),
    Case("nvflare_percentile.json", "no-noise"),
    Case("nvflare_svt.py", "svt-release", 8),
)

SOUND = (
    Case("flower_accounted.py"),
    Case("flower_legacy_equal_weights.py", "", 1000),
    Case("flower_more_noise.py", "", 1000),
    Case("flower_adaptive.py", "", 500),
    Case("flower_client_mod.py", "", 100),
    Case("flower_secagg.py", "", 5000),
    Case("flower_local_once.py"),
    Case("flower_project.toml", "", 6000),
    Case("opacus_poisson.py", "", 10000),
    Case("opacus_target.py", "", 10000),
    Case("opacus_run.yaml", "", 10000),
    Case("pfl_poisson.py", "", 100_000),
    Case("pfl_direct.py", "", 2000),
    Case("pfl_benchmark.yaml"),
    Case("nvflare_local.json"),
    Case("nvflare_svt.py", "", 8),
)


def report(case):
    return lint(str(case.path), case.framework, Options(case.population))


def named(name):
    return next(case for case in (*BROKEN, *SOUND) if case.file == name)


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.file)
def test_a_broken_file_is_found(case):
    findings = report(case)
    uncertain = case.alarm in TO_LOOK_AT
    (alarm,) = findings.look_at if uncertain else findings.alarms
    assert alarm.code == case.alarm
    assert alarm.line > 0
    assert alarm.message
    assert alarm.cost
    assert findings.exit_code == (0 if uncertain else ALARMS)
    assert findings.epsilon == {}


@pytest.mark.parametrize("case", SOUND, ids=lambda case: case.file)
def test_a_sound_file_has_no_alarm(case):
    findings = report(case)
    assert findings.alarms == findings.look_at == []
    assert findings.exit_code == 0
    assert findings.epsilon or findings.undetermined or findings.not_understood


def test_every_file_of_the_corpus_is_tested():
    files = {*(FOLDER / "broken").iterdir(), *(FOLDER / "sound").iterdir()}
    cases = {case.path for case in (*BROKEN, *SOUND)}
    assert files == {path for path in cases if path.is_relative_to(FOLDER)}
    assert {path.name for path in cases - files} == set(EDITS)


def test_the_command_line_and_json():
    case = named("opacus_poisson.py")
    options = ("--of", "opacus", "--population", "10000")
    shown = answer("lint", case.path, *options)
    assert "if each of these is so: epsilon of a record <= 3.0256" in shown
    assert "no alarm; this is no guarantee: run it under the guard" in shown
    data = json.loads(answer("lint", case.path, *options, "--format", "json"))
    assert data["format"] == "privplan.contrib.lint/2"
    assert data["outcome"] == "no alarm"
    assert data["accountant"] == "pld"
    doubtful = named("nvflare_percentile.json")
    shown = answer("lint", doubtful.path, "--of", "nvflare")
    assert "look at no-noise (line 5" in shown
    assert "ALARM" not in shown
    broken = named("nvflare_svt.py")
    done = privplan("lint", broken.path, "--of", "nvflare", "--format=json")
    assert done.exit_code == ALARMS
    assert json.loads(done.stdout)["alarms"][0]["code"] == "svt-release"


def test_no_word_that_could_be_taken_for_a_guarantee():
    sources = "".join(
        path.read_text()
        for path in (Path(__file__).parents[3] / "privplan/contrib/lint").rglob("*.py")
    )
    assert "holds" not in sources
    assert "true epsilon" not in sources
    for case in SOUND:
        shown = answer("lint", case.path, "--of", case.framework)
        assert "no guarantee" in shown
        assert ("epsilon of a" in shown) == ("if each of these is so" in shown)
