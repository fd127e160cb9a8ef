"""Single traps and the files beside them that are sound, where a line makes the difference."""

from __future__ import annotations

from pathlib import Path

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

from privplan.contrib.lint.judge import Report, lint
from privplan.contrib.lint.reading import Options

TRAINING = """
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader

loader = DataLoader(records, batch_size=250)
{before}
for _ in range({runs}):
    model = {model}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = PrivacyEngine()
    model, optimizer, private = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader,
        noise_multiplier=1.1, max_grad_norm=1.0,
    )
    for epoch in range(10):
        for images, labels in private:
            {step}
            optimizer.zero_grad()
            loss(model(images), labels).backward()
            optimizer.step()
    print(engine.get_epsilon(delta=1e-6))
"""


def linted(folder: Path, text: str, name: str = "train.py") -> Report:
    """The report on a file of Opacus about 10,000 records."""
    path = folder / name
    path.write_text(text)
    return lint(str(path), "opacus", Options(population=10_000))


def training(model: str = "Net()", step: str = "pass", before: str = "", runs: str = "3") -> str:
    return TRAINING.format(model=model, step=step, before=before, runs=runs)


@pytest.fixture(scope="module")
def one_run():
    """Epsilon of one training, by another library."""
    event = dp_accounting.PoissonSampledDpEvent(0.025, dp_accounting.GaussianDpEvent(1.1))
    return float(PLDAccountant().compose(event, 400).get_epsilon(1e-6))


@pytest.mark.parametrize("runs", ["3", "args.n_runs"])
def test_repeated_trainings_of_new_models_are_one_run_each(tmp_path, runs, one_run):
    report = linted(tmp_path, training(runs=runs))
    assert report.alarms == ()
    assert report.rows[0].lower == pytest.approx(one_run, rel=5e-3)
    assert any("trains a new model" in note for note in report.notes)


@pytest.mark.parametrize("model", ["copy.deepcopy(shared)", "load_last()", "shared_model"])
def test_a_model_that_goes_on_needs_an_accountant_that_does(tmp_path, model):
    report = linted(tmp_path, training(model))
    assert [alarm.code for alarm in report.alarms] == ["fresh-accountant"]
    assert not any(": holds" in note for note in report.notes)
    assert any("not shown to hold" in note for note in report.notes)


@pytest.mark.parametrize(
    ("step", "alarms"),
    [
        ("images = images.half().float()", []),
        ("x = images.to(torch.float16)", []),
        ("batch_data = batch_data.bfloat16()", []),
        ("model.half()", ["half-precision"]),
        ("self.update = self.update.to(torch.float16)", ["half-precision"]),
    ],
)
def test_half_precision_matters_where_noise_is_added(tmp_path, step, alarms):
    assert [alarm.code for alarm in linted(tmp_path, training(step=step)).alarms] == alarms


def _log(sigma: float, epsilon: float) -> str:
    epochs = "".join(
        f"Train Epoch: {epoch} \tLoss: 0.4 (ε = {epsilon:.2f}, δ = 1e-06)\n"
        for epoch in range(1, 11)
    )
    return f"batch size: 250\nUsing sigma={sigma} and C=1.0\n{epochs}"


def test_a_log_shows_the_noise_that_was_chosen(tmp_path, one_run):
    sound = linted(tmp_path, _log(1.1, round(one_run + 0.05, 2)), "train.log")
    assert sound.alarms == ()
    assert sound.rows[0].lower == pytest.approx(one_run, rel=5e-3)
    broken = linted(tmp_path, _log(0.7, round(one_run, 2)), "train.log")
    assert [alarm.code for alarm in broken.alarms] == ["understated"]
