"""Tuning on proxy data: the plan's noise, resumed searches, initial parameters."""

import hashlib
import json
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from privplan.errors import InputError
from privplan.planning.baselines import uniform
from privplan.planning.recipe import recipe_lines
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.spec.training import fields_digest
from privplan.sweeps import InterruptedSweepError
from privplan.verification.verify import judge, load_run
from privplan.yaml_text import load_yaml
from simulate.algorithms.registry import algorithm
from simulate.proxy import search as tuning
from simulate.proxy.candidate import Candidate, default_candidate, space
from simulate.proxy.training import Setting, smaller
from simulate.replay.replay import Replay
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.command import answer, privplan

TEXT = """# budgets of the digits
name: small
groups:
  - {name: strict, clients: 70, epsilon: 2.0}   # half
  - {name: loose, clients: 70, epsilon: 8.0}
rounds: 4
cohort: 60
local: {steps: 2, learning_rate: 0.2}
model: {name: mlp-digits, parameters: 2410}
planning: {accountant: rdp}
"""
DATA: dict[str, Any] = load_yaml(TEXT, "spec")
SETTING = Setting(spec=DATA, algorithm="planned", dataset="digits", partition="iid")


@pytest.fixture(scope="module")
def plan():
    return solve(Spec.parse(DATA))


def mean_noise(plan):
    """Noise of the mean update over C: deviation of the sum over its divisor."""
    std = max(group.noise_multiplier * group.scale for group in plan.groups)
    return std / sum(group.scale * group.expected_cohort for group in plan.groups)


def test_a_smaller_cohort_has_the_noise_of_the_plan(plan):
    smaller_plan = smaller(plan, 1 / 8)
    assert smaller_plan.groups[0].expected_cohort == pytest.approx(
        plan.groups[0].expected_cohort / 8
    )
    assert mean_noise(smaller_plan) == pytest.approx(mean_noise(plan))
    assert mean_noise(plan) == pytest.approx(
        plan.mean_noise_std / plan.spec.clipping_norm
    )


def test_a_candidate_is_a_spec_whose_server_has_its_step(plan):
    default = default_candidate(plan)
    varied = space(default)
    for end in (0, -1):
        values = {name: choices[end] for name, choices in varied.items()}
        candidate = Candidate(**{**default.model_dump(), **values})
        spec = Spec.parse(candidate.applied(DATA))
        rate = spec.server.learning_rate or 0.0
        length = rate * spec.clipping_norm / (1 - (spec.server.momentum or 0.0))
        assert length == pytest.approx(candidate.step, rel=1e-3)
        assert spec.local.steps == candidate.local_steps
        assert (spec.averaging is None) == (candidate.decay == 0)
    same = Spec.parse(default.applied(DATA))
    for field in ("clipping_norm", "server", "averaging", "local"):
        assert getattr(same, field) == getattr(plan.spec, field)


def scored(task):
    """A stand-in for a run: best at momentum 0.5 and step 1."""
    recipe = task[1].recipe
    return float(np.exp(-abs(np.log(recipe.step)) - abs(recipe.momentum - 0.5))) * 0.9


@pytest.mark.slow
def test_an_interrupted_search_repeats_no_run_and_finds_the_same(tmp_path, monkeypatch):
    calls: list[tuning.Trial] = []

    def counted(task):
        if len(calls) in stops:
            stops.remove(len(calls))
            raise KeyboardInterrupt
        calls.append(task[1])
        return scored(task)

    def search(folder, seed=3):
        return tuning.search_recipe(SETTING, 12, tmp_path / folder, seed)

    stops: set[int] = set()
    monkeypatch.setattr(tuning, "accuracy", counted)
    uninterrupted = search("whole")
    assert uninterrupted.best.mean >= uninterrupted.default.mean
    assert uninterrupted.evidence.runs == len(calls) < 12 * 3
    assert {trial.share for trial in calls} == {1 / 8, 1 / 3, 1.0}
    assert search("whole") == uninterrupted
    assert len(calls) == uninterrupted.evidence.runs
    calls.clear()
    stops = {0, 9}
    for _ in range(2):
        with pytest.raises(InterruptedSweepError, match="the same command resumes"):
            search("parts")
    assert search("parts") == uninterrupted
    assert len(calls) == len(set(calls)) == uninterrupted.evidence.runs
    with pytest.raises(InputError, match="must not hold results of other settings"):
        search("parts", seed=4)
    (tmp_path / "whole" / "study.db").write_text("damaged")
    with pytest.raises(InputError, match="output: must be the storage of a search"):
        search("whole")


@pytest.mark.slow
def test_the_command_writes_a_spec_with_its_evidence(tmp_path):
    (tmp_path / "spec.yaml").write_text(TEXT)
    output = tmp_path / "tuned.yaml"
    arguments = ["--dataset", "digits", "--trials", "4", "-o", output]
    answer("proxy", "tune", tmp_path / "spec.yaml", *arguments)
    assert output.read_text().startswith(TEXT.split("local:")[0])  # comments stay
    evidence = json.loads((tmp_path / "tuned.evidence.json").read_text())
    assert evidence["rounds"] == 4
    assert evidence["model"] == "mlp-digits"
    assert evidence["seeds"] == 2
    assert evidence["accuracy"] == fmean(evidence["trials"][0]["scores"])
    plan = solve(output)
    recipe = plan.spec.recipe
    assert recipe.source == "tuned"
    assert recipe.replaced == {"local": {"steps": 2, "learning_rate": 0.2}}
    baseline = uniform(plan.spec).spec
    assert baseline.local.learning_rate == 0.2
    assert baseline.clipping_norm == 1.0
    assert baseline.server is None
    assert any("public or proxy data" in line for line in recipe_lines(plan))
    assert evidence["recipe"] == fields_digest(plan.spec.model_dump(mode="json"))
    assert solve(plan.spec).digest == plan.digest


def tuned(folder, name, text=TEXT, **options):
    """Result of ``privplan tune`` for an algorithm; the spec is ``tuned.yaml``."""
    (folder / "spec.yaml").write_text(text)
    words = ["--dataset=digits", "--trials=4", "--algorithm", name]
    words += [f"--{key}={value}" for key, value in options.items()]
    words += ["-o", folder / "tuned.yaml"]
    return privplan("proxy", "tune", folder / "spec.yaml", *words)


@pytest.mark.slow
def test_another_algorithm_gets_its_recipe_as_given_fields(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "accuracy", scored)
    done = tuned(tmp_path, "fedavg", trials=12)
    assert done.exit_code == 0, done.output
    assert "planned trains with them, too" in done.stderr
    spec = Spec.load(tmp_path / "tuned.yaml")
    assert spec.recipe.source == "none"
    assert uniform(spec).spec.server == spec.server


@pytest.mark.slow
def test_a_method_with_its_own_server_is_tuned_without_one(tmp_path):
    done = tuned(tmp_path, "DP-FedPGN")
    assert done.exit_code == 0, done.output
    assert "momentum" not in done.stdout
    spec = Spec.load(tmp_path / "tuned.yaml")
    assert spec.server is spec.averaging is None
    algorithm("DP-FedPGN", solve(spec))
    refused = tuned(tmp_path, "DP-FedPGN", TEXT + "server: {learning_rate: 2}\n")
    assert refused.exit_code == 2
    assert "server: must be left out for DP-FedPGN, which has its own" in refused.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"server": {"optimizer": "adam"}},
            "server.optimizer: must be sgd or momentum",
        ),
        (
            {"averaging": {"method": "tail"}},
            "averaging.method: must be ema to be tuned",
        ),
    ],
)
def test_recipes_that_cannot_be_tuned_are_refused(change, message, tmp_path):
    with pytest.raises(InputError, match=message):
        tuning.search_recipe(
            SETTING.model_copy(update={"spec": {**DATA, **change}}), 4, tmp_path
        )


def warm(folder):
    """Plain data of the spec, starting from parameters in a file."""
    file = folder / "warm.npy"
    np.save(file, np.zeros(DATA["model"]["parameters"], np.float32))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    initial = {"file": str(file), "sha256": digest, "source": "digits"}
    return {**DATA, "model": {**DATA["model"], "initial": {**initial, "head": "drawn"}}}


def test_a_run_from_parameters_in_a_file_is_kept_and_replayed(tmp_path):
    plan = solve(Spec.parse(warm(tmp_path)))
    execute(Request(plan, "planned", "digits", tmp_path / "run"))
    assert judge(load_run(tmp_path / "run"), 0).outcome == "kept"
    report = Replay(tmp_path / "run").run(None, None, lambda done, total: None)
    assert report.outcome == "passed"
    (tmp_path / "warm.npy").write_bytes(b"other")
    with pytest.raises(InputError, match=r"model\.initial\.sha256: must be that of"):
        Replay(tmp_path / "run")
    (tmp_path / "warm.npy").unlink()
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    report = Replay(moved).run(None, None, lambda done, total: None)
    assert report.outcome == "passed"
    (moved / "initial.npy").write_bytes(b"other")
    with pytest.raises(
        InputError, match=r"model\.initial\.sha256: must be that of.*initial\.npy"
    ):
        Replay(moved)


def test_no_recipe_is_tuned_on_the_records_that_parameters_were_trained_on(tmp_path):
    data = warm(tmp_path)
    plan = solve(Spec.parse(data))
    trial = tuning.Trial(recipe=default_candidate(plan), share=1.0, seed=0)
    for name in ("digits", "Digits", "digits:1000"):
        setting = SETTING.model_copy(update={"spec": data, "dataset": name})
        with pytest.raises(
            InputError, match=r"other data than those that model\.initial"
        ):
            tuning.accuracy((setting, trial))
