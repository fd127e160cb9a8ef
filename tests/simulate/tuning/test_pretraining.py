"""Pretraining on public data: what is trained, the test on other classes, and what is written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from privplan.errors import InputError
from privplan.files import load_yaml
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.verification.verify import judge, load_run
from simulate.cli.proxy import pretrain as command
from simulate.models.registry import model
from simulate.proxy import pretraining
from simulate.proxy.pretraining import PublicTraining, pretrain
from simulate.proxy.search import Setting, Trial, accuracy, default_candidate, loaded
from simulate.replay.replay import Replay
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.simulate.tuning.test_tuning import DATA, SETTING, TEXT


def run(folder: Path, *words: str) -> Result:
    (folder / "spec.yaml").write_text(TEXT)
    arguments = ["--dataset", "digits", "-o", str(folder / "warm.yaml"), *words]
    return CliRunner().invoke(command, [str(folder / "spec.yaml"), *arguments])


def better(task: tuple[Setting, int]) -> float:
    """A stand-in for a run that pretrained parameters help."""
    return 0.7 if "initial" in task[0].spec["model"] else 0.6


def test_the_command_writes_a_spec_that_starts_from_its_parameters(tmp_path, monkeypatch):
    monkeypatch.setattr(pretraining, "_accuracy", better)
    done = run(tmp_path, "--epochs", "6")
    assert done.exit_code == 0, done.output
    assert "must be public" in done.stderr
    spec = Spec.load(tmp_path / "warm.yaml")
    initial = spec.model.initial
    assert initial.source == "digits"
    assert initial.head == "drawn"
    assert "# half" in (tmp_path / "warm.yaml").read_text()  # comments stay
    theta = torch.from_numpy(np.load(initial.file))
    data, net = loaded(SETTING), model("mlp-digits")
    found = net.logits(theta, data.inputs(data.test_x)).argmax(1)
    assert float((found == data.test_y).float().mean()) > 0.8  # it was trained
    before = (tmp_path / "warm.yaml").read_bytes()
    again = run(tmp_path, "--epochs", "6")
    assert again.stdout == done.stdout
    assert (tmp_path / "warm.yaml").read_bytes() == before
    with pytest.raises(InputError, match="must not hold results of other settings"):
        raise run(tmp_path, "--epochs", "7").exception or AssertionError


def test_parameters_of_no_use_are_not_kept_and_files_of_others_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "warm.yaml.npy").write_text("precious")
    with pytest.raises(InputError, match="output: must not exist before"):
        raise run(tmp_path, "--epochs", "1").exception or AssertionError
    assert (tmp_path / "warm.yaml.npy").read_text() == "precious"
    (tmp_path / "warm.yaml.npy").unlink()
    monkeypatch.setattr(pretraining, "_accuracy", lambda task: 1.2 - better(task))
    done = run(tmp_path, "--epochs", "1")
    assert done.exit_code == 0, done.output
    assert "nothing was gained" in done.stderr
    assert not (tmp_path / "warm.yaml.npy").exists()
    assert load_yaml((tmp_path / "warm.yaml").read_text(), "spec") == DATA


def test_parameters_that_were_edited_are_trained_again(tmp_path, monkeypatch):
    monkeypatch.setattr(pretraining, "_accuracy", better)
    assert run(tmp_path, "--epochs", "1").exit_code == 0
    good = (tmp_path / "warm.yaml.npy").read_bytes()
    [kept] = (tmp_path / "warm.yaml.pretraining").glob("all-*.npy")
    kept.write_bytes(b"other")
    assert run(tmp_path, "--epochs", "1").exit_code == 0
    assert (tmp_path / "warm.yaml.npy").read_bytes() == good


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-o", "a\nb"), "file: must be printable text on one line"),
        (("--partition", "foo"), "partition: must be by-class"),
        (("--algorithm", "HyperFL-LPM"), "algorithm: must train mlp-digits; HyperFL-LPM trains"),
    ],
)
def test_what_cannot_be_pretrained_is_refused_first(tmp_path, words, said):
    with pytest.raises(InputError, match=said):
        raise run(tmp_path, *words).exception or AssertionError
    assert sorted(one.name for one in tmp_path.iterdir()) == ["spec.yaml"]


def test_the_other_classes_are_other_records():
    whole = loaded(SETTING)
    part = loaded(SETTING.model_copy(update={"classes": (1, 3)}))
    assert set(part.train_y.tolist()) == set(part.test_y.tolist()) == {1, 3}
    assert len(part.train_y) == int(((whole.train_y == 1) | (whole.train_y == 3)).sum())


def test_the_runs_differ_in_their_start_only(tmp_path):
    done = run(tmp_path, "--epochs", "2")
    assert done.exit_code == 0, done.output
    lines = (tmp_path / "warm.yaml.pretraining" / "trials.jsonl").read_text().splitlines()
    runs = [json.loads(line) for line in lines]
    assert len(runs) == 2 * pretraining.SEEDS
    cold = Setting(**SETTING.model_dump(exclude={"classes"}), classes=(1, 3, 5, 7, 9))
    expected = {pretraining._accuracy((cold, seed)) for seed in range(pretraining.SEEDS)}
    assert expected < {line["rows"] for line in runs}


def test_a_run_from_them_is_kept_and_replayed(tmp_path, monkeypatch):
    monkeypatch.setattr(pretraining, "_accuracy", better)
    assert run(tmp_path, "--epochs", "1").exit_code == 0
    plan = solve(tmp_path / "warm.yaml", second_opinion=False)
    execute(Request(plan, "planned", "digits", tmp_path / "run"))
    assert judge(load_run(tmp_path / "run")).outcome == "kept"
    report = Replay(tmp_path / "run").run(None, None, lambda done, total: None)
    assert report.outcome == "passed"
    (tmp_path / "warm.yaml.npy").write_bytes(b"other")
    with pytest.raises(InputError, match=r"model\.initial\.sha256: must be that of"):
        Replay(tmp_path / "run")
    (tmp_path / "warm.yaml.npy").unlink()
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    report = Replay(moved).run(None, None, lambda done, total: None)
    assert report.outcome == "passed"
    (moved / "initial.npy").write_bytes(b"other")
    with pytest.raises(InputError, match=r"model\.initial\.sha256: must be that of.*initial\.npy"):
        Replay(moved)


def test_no_recipe_is_tuned_on_the_records_that_parameters_were_trained_on(tmp_path, monkeypatch):
    monkeypatch.setattr(pretraining, "_accuracy", better)
    assert run(tmp_path, "--epochs", "1").exit_code == 0
    data = load_yaml((tmp_path / "warm.yaml").read_text(), "spec")
    plan = solve(Spec.parse(data), second_opinion=False)
    trial = Trial(recipe=default_candidate(plan), share=1.0, seed=0)
    for name in ("digits", "Digits", "digits:1000"):
        setting = SETTING.model_copy(update={"spec": data, "dataset": name})
        with pytest.raises(InputError, match=r"other data than those that model\.initial"):
            accuracy((setting, trial))
    setting = SETTING.model_copy(update={"spec": data})
    training = PublicTraining(epochs=1, learning_rate=0.1, seed=0)
    with pytest.raises(InputError, match=r"model\.initial: must be left out"):
        pretrain(setting, training, tmp_path / "again.npy", tmp_path / "again")
