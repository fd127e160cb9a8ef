"""Configurations as documentation writes them, single traps, and values of a script."""

from pathlib import Path

import dp_accounting
import pytest
import yaml
from dp_accounting.pld import PLDAccountant

from privplan.contrib.lint.judge import ALARMS, UNDETERMINED, lint
from privplan.contrib.lint.reading import Options
from privplan.contrib.lint.script import UNKNOWN, Script

DATA = yaml.safe_load(Path(__file__).with_name("configurations.yaml").read_text())


def reference(truth):
    law, noise, ratio, rounds = truth
    if law == "svt":
        return noise * rounds
    event = dp_accounting.GaussianDpEvent(noise / 2 if law == "fixed" else noise)
    if law in ("fixed", "poisson"):
        event = dp_accounting.PoissonSampledDpEvent(ratio, event)
    return float(PLDAccountant().compose(event, rounds).get_epsilon(1e-5))


@pytest.mark.parametrize("name", DATA["rows"])
def test_a_documented_configuration(name, tmp_path):
    row, of = DATA["rows"][name], name.partition(" ")[0]
    text = DATA["bases"][of]
    for old, new in row.get("edits", ()):
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "train.py"
    path.write_text(text)
    report = lint(str(path), of, Options(60_000 if of == "opacus" else 1000, None, 1e-5))
    said = " ".join(report.notes)
    if code := row.get("alarm"):
        assert code in [alarm.code for alarm in report.alarms]
        assert report.exit_code == ALARMS
        assert ": holds" not in said or code in ("evaluation", "shuffled", "unfiltered")
        return
    assert report.alarms == ()
    if row.get("undetermined"):
        assert report.exit_code == UNDETERMINED
        assert report.undetermined
        assert ": holds" not in said
        return
    assert report.exit_code == 0
    if "truth" in row:
        assert report.rows[0].upper == pytest.approx(reference(row["truth"]), rel=5e-3)


@pytest.mark.parametrize(
    ("line", "code"),
    [("noise_schedule: exponential", 5), ("sigma_decay: 0.9", 5), ("noise_schedule: constant", 0)],
)
def test_a_schedule_of_a_configuration(line, code, tmp_path):
    (tmp_path / "run.yaml").write_text(
        "framework: opacus\nnoise_multiplier: 1.1\nbatch_size: 600\nepochs: 10\ndelta: 1e-5\n"
        + line
    )
    assert lint(str(tmp_path / "run.yaml"), "opacus", Options(60_000)).exit_code == code


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


def linted(folder, text, name="train.py"):
    """The report on a file of Opacus about 10,000 records."""
    path = folder / name
    path.write_text(text)
    return lint(str(path), "opacus", Options(population=10_000))


def training(model="Net()", step="pass", before="", runs="3"):
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


def _log(sigma, epsilon):
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f(3)", 3), ("a = 2\nb = a * 3\nf(b + 1)", 7), ("a = 1\na = 2\nf(a)", 2),
        ("a = 1\nf(a)\na = 2", 1), ("a = 1\nif x:\n    a = 2\nf(a)", UNKNOWN),
        ("if x:\n    a = 2\nelse:\n    a = 2\nf(a)", 2),
        ("a = 1\nfor i in y:\n    f(a)\n    a *= 2", UNKNOWN), ("a = 1\na += 1\nf(a)", UNKNOWN),
        ("import os\nf(os.environ['A'])", UNKNOWN), ("f(args.noise)", UNKNOWN),
        ("c = {'z': 1.5}\nf(c['z'])", 1.5),
        ("from types import SimpleNamespace\nc = SimpleNamespace(z=4)\nf(c.z)", 4),
        ("class C:\n    z = 5\nf(C.z)", 5), ("def g(n=1):\n    f(n)\ng()", 1),
        ("def g(n=1):\n    f(n)\ng(2)\ng(n=2)", 2), ("def g(n=1):\n    f(n)\ng(2)\ng(3)", UNKNOWN),
        ("def g(n=1):\n    f(n)", UNKNOWN), ("n = 10\ndef g():\n    f(n)", 10),
        ("def g():\n    f(n)\nn = 10", 10), ("n = 10\ndef g(n):\n    f(n)", UNKNOWN),
        ("a, b = 1, 2\nf(b)", 2), ("a, b = g()\nf(b)", UNKNOWN),
        ("import math\nf(math.sqrt(4))", 2.0), ("f(1 / 0)", UNKNOWN), ("f(9 ** 9 ** 9)", UNKNOWN),
        ("a = b\nb = a\nf(a)", UNKNOWN),
        ("global_ = 1\ndef g():\n    global global_\n    global_ = 2\nf(global_)", UNKNOWN),
    ],
)  # fmt: skip
def test_the_value_of_an_argument(text, expected):
    (call,) = Script(text).named("f")
    value = call.argument("x", 0)
    assert value is UNKNOWN if expected is UNKNOWN else value == expected


@pytest.mark.parametrize(
    "text",
    [
        "f(context.run_config['noise-multiplier'])",
        "c = context.run_config\nf(c['noise-multiplier'])",
        "c = context.run_config\nf(c.get('noise-multiplier', 9))",
        "def g(cfg):\n    f(float(cfg['noise-multiplier']))\ng(context.run_config)",
    ],
)
def test_the_run_configuration_is_read_under_any_name(text):
    (call,) = Script(text, {"noise_multiplier": 1.5}).named("f")
    assert call.argument("x", 0) == 1.5
    (call,) = Script(text.replace("['noise", "['other").replace("('noise", "('other"),
                     {"noise_multiplier": 1.5}).named("f")  # fmt: skip
    assert call.argument("x", 0) in (UNKNOWN, 9)


def test_a_script_is_not_executed(tmp_path):
    Script(f"open({str(tmp_path / 'made')!r}, 'w').close()\nraise SystemExit(9)")
    assert list(tmp_path.iterdir()) == []
