"""Configurations as documentation writes them, single traps, and values of a script."""

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

from privplan.contrib.lint.executions import times
from privplan.contrib.lint.judge import lint
from privplan.contrib.lint.reading import ALARMS, Options
from privplan.contrib.lint.script import UNKNOWN, Result, Script
from tests.contrib.lint.inputs import DATA, configuration_of


def reference(truth):
    _, noise, ratio, rounds = truth
    event = dp_accounting.PoissonSampledDpEvent(
        ratio, dp_accounting.GaussianDpEvent(noise)
    )
    return float(PLDAccountant().compose(event, rounds).get_epsilon(1e-5))


@pytest.mark.parametrize("name", DATA["rows"])
def test_a_documented_configuration(name, tmp_path):
    row = DATA["rows"][name]
    report = configuration_of(name).linted(tmp_path)
    if code := row.get("alarm"):
        assert code in [alarm.code for alarm in report.alarms]
        assert report.exit_code == ALARMS
        assert report.epsilon == {}
        return
    assert report.alarms == []
    assert report.exit_code == 0
    if "truth" in row:
        assert float(report.epsilon["add_remove"]) == pytest.approx(
            reference(row["truth"]), rel=5e-3
        )
        assert len(report.read) > 5
    else:
        assert report.epsilon == {}
        assert report.undetermined or report.not_understood


TRAINING = """
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader

loader = DataLoader(records, batch_size=250)
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
    """The findings in a file of Opacus about 10,000 records."""
    path = folder / name
    path.write_text(text)
    return lint(str(path), "opacus", Options(population=10_000))


def training(model="Net()", step="pass", runs="3"):
    return TRAINING.format(model=model, step=step, runs=runs)


@pytest.mark.parametrize("runs", ["3", "args.n_runs"])
def test_repeated_trainings_of_new_models_are_no_alarm_and_have_no_epsilon(
    tmp_path, runs
):
    report = linted(tmp_path, training(runs=runs))
    assert report.alarms == []
    assert report.epsilon == {}


@pytest.mark.parametrize(
    "model", ["copy.deepcopy(shared)", "load_last()", "shared_model"]
)
def test_a_model_that_goes_on_needs_an_accountant_that_does(tmp_path, model):
    report = linted(tmp_path, training(model))
    assert [alarm.code for alarm in report.alarms] == ["fresh-accountant"]


@pytest.mark.parametrize(
    ("step", "alarms"),
    [
        ("images = images.half().float()", []),
        ("x = images.to(torch.float16)", []),
        ("batch_data = batch_data.bfloat16()", []),
        ("model.half()", ["half-precision"]),
        ("self.update = self.update.to(torch.float16)", ["half-precision"]),
        ("images = np.clip(images + np.random.normal(0, 1, images.shape), 0, 1)", []),
        ("update = clip_update(update + torch.randn_like(update))", ["noise-before-clipping"]),
        ("update += torch.randn_like(x)\n            y = clip_update(update)",
         ["noise-before-clipping"]),
        ("update = clip_update(update)\n            update += torch.randn_like(x)", []),
        ("max_norm = float(np.quantile(norms, 0.5))", ["unpaid-clipping"]),
        ("threshold = np.quantile(scores, 0.5)", []),
    ],
)  # fmt: skip
def test_precision_and_order_matter_where_noise_is_added(tmp_path, step, alarms):
    assert [
        alarm.code for alarm in linted(tmp_path, training(step=step)).alarms
    ] == alarms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f(3)", 3), ("a = 2\nb = a * 3\nf(b + 1)", 7), ("a = 1\na = 2\nf(a)", 2),
        ("a = 1\nf(a)\na = 2", 1), ("a = 1\nif x:\n    a = 2\nf(a)", UNKNOWN),
        ("if x:\n    a = 2\nelse:\n    a = 3\nf(a)", UNKNOWN), ("a = 1; a = 2; f(a)", 2),
        ("a = 1\nfor i in y:\n    f(a)\n    a *= 2", UNKNOWN), ("a = 1\na += 1\nf(a)", UNKNOWN),
        ("import os\nf(os.environ['A'])", UNKNOWN), ("f(args.noise)", UNKNOWN),
        ("x = 5\ny = [f(x) for x in z]", UNKNOWN), ("a = 1\nif (a := 2):\n    f(a)", UNKNOWN),
        ("def g(n=1):\n    f(n)\ng()", UNKNOWN), ("def g(n):\n    f(n)\ng(2)", 2),
        ("def g(n):\n    f(n)\ng(n=2)", 2), ("def g(n=1):\n    f(n)\ng(2)\ng(3)", UNKNOWN),
        ("def g(n=1):\n    f(n)", UNKNOWN), ("n = 10\ndef g():\n    f(n)", 10),
        ("def g():\n    f(n)\nn = 10", 10), ("n = 10\ndef g(n):\n    f(n)", UNKNOWN),
        ("a, b = 1, 2\nf(b)", 2), ("f(1 / 0)", UNKNOWN), ("f(9 ** 9 ** 9)", UNKNOWN),
        ("import math\nf(math.ceil(1.5))", 2), ("a = b\nb = a\nf(a)", UNKNOWN),
        ("a = 1\ndef g():\n    global a\n    a = 2\nf(a)", UNKNOWN), ("f('1')", "1"),
        ("a = [1]\na.append(2)\nf(a)", UNKNOWN), ("with o() as a:\n    f(a)", "a call"),
        ("a, b = g()\nf(b)", "a call"),
    ],
)  # fmt: skip
def test_the_value_of_an_argument(text, expected):
    script = Script(text)
    (call,) = script.named("f")
    value = script.value(call.node.args[0])
    if expected == "a call":
        assert isinstance(value, Result)
    else:
        assert value is UNKNOWN if expected is UNKNOWN else value == expected


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("f()", 1), ("for i in range(3):\n    f()", 3), ("for i in tqdm(range(3)):\n    f()", 3),
        ("for i in x:\n    f()", float("inf")), ("while x:\n    f()", float("inf")),
        ("for i in range(2):\n    for j in range(5):\n        f()", 10),
        ("def g():\n    f()\nfor i in range(4):\n    g()", 4), ("def g():\n    f()", UNKNOWN),
        ("def g():\n    f()\ng()\ng()", float("inf")), ("def g():\n    f()\nh(g)\ng()", UNKNOWN),
        ("class C:\n    def fit(self):\n        f()", float("inf")),
        ("class C:\n    def other(self):\n        f()", UNKNOWN),
        ("@app.train()\ndef t(m):\n    f()", float("inf")), ("def g():\n    f()\n    g()", UNKNOWN),
        ("if x:\n    f()", 1), ("[f() for i in x]", UNKNOWN), ("lambda: f()", UNKNOWN),
    ],
)  # fmt: skip
def test_how_often_a_call_runs(text, count):
    script = Script(text)
    (call,) = script.named("f")
    assert times(script, call.node) == count


def test_a_script_is_not_executed(tmp_path):
    Script(f"open({str(tmp_path / 'made')!r}, 'w').close()\nraise SystemExit(9)")
    assert list(tmp_path.iterdir()) == []
