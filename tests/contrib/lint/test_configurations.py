"""Configurations as documentation writes them, single traps, and values of a script."""

import re
from dataclasses import replace

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

from privplan.contrib.lint.executions import times
from privplan.contrib.lint.judge import lint
from privplan.contrib.lint.reading import ALARMS, Options
from privplan.contrib.lint.script import UNKNOWN, Result, Script
from privplan.errors import InputError
from tests.contrib.lint.inputs import DATA, Input, configuration_of


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
    doubts = [row["look"]] if "look" in row else []
    assert sorted({alarm.code for alarm in report.look_at}) == doubts
    if code := row.get("alarm"):
        assert [alarm.code for alarm in report.alarms] == [code]
        assert report.exit_code == ALARMS
        assert report.epsilon == {}
        return
    assert report.alarms == []
    assert report.exit_code == 0
    reasons = " ".join(map(str, (*report.undetermined, *report.not_understood)))
    for words in row.get("named", ()):
        assert words in reasons
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
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = PrivacyEngine()
    model, optimizer, private = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader,
        noise_multiplier=1.1, max_grad_norm=1.0,
    )
    for epoch in range(10):
        for images, labels in private:
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


@pytest.mark.parametrize("runs", ["3", "args.n_runs"])
def test_repeated_trainings_of_new_models_are_no_alarm_and_have_no_epsilon(
    tmp_path, runs
):
    report = linted(tmp_path, TRAINING.format(runs=runs))
    assert report.alarms == []
    assert [alarm.code for alarm in report.look_at] == ["several"]
    assert report.epsilon == {}


LITERAL = configuration_of("opacus tutorial")


@pytest.mark.parametrize(
    ("edit", "condition"),
    [
        (("nn.Flatten(), ", "Mixing(), "), "nothing in data set, model, loss or loop mixes"),
        (("ToTensor()", "Normalize(MEAN, SPREAD)"), "nothing else that is computed from private"),
        (("'data'", "'data/with/copies'"), "one of each person, once"),
        (("1.1", "CHOSEN"), "in this run or another"),
    ],
)  # fmt: skip
def test_what_reading_cannot_see_is_a_condition(tmp_path, edit, condition):
    names = "class Mixing(nn.Module):\n    def forward(self, x):\n"
    names += "        return x.view(-1, 7)\nMEAN = 0.2\nSPREAD = 0.1\nCHOSEN = 1.1\n"
    text = LITERAL.text.replace('"data"', "'data'").replace(*edit)
    text = text.replace("model = nn", names + "model = nn", 1)
    report = replace(LITERAL, text=text).linted(tmp_path)
    assert report.epsilon, report.not_understood
    assert condition in " ".join(map(str, report.read))


def test_steps_on_the_command_line_supply_an_open_count(tmp_path):
    text = LITERAL.text.replace("range(10)", "range(count)")
    text = text.replace("#before", "count = 3\ncount = 10")
    assert replace(LITERAL, text=text).linted(tmp_path).epsilon == {}
    report = replace(LITERAL, text=text, rounds=1000).linted(tmp_path)
    assert report.epsilon == LITERAL.linted(tmp_path).epsilon
    assert replace(LITERAL, rounds=999).linted(tmp_path).epsilon == {}


@pytest.mark.parametrize(
    ("kind", "text", "rule"),
    [
        ("ipynb", "%%bash\npip install opacus && true", "must be code that Python"),
        ("py", "a = 1\nfiles = !ls", "line 2"),
        ("log", "epsilon 0.4", "must be .py, .ipynb, .md, .toml, .yaml or .json"),
    ],
)
def test_what_is_no_code_is_refused_in_one_line(tmp_path, kind, text, rule):
    with pytest.raises(InputError, match=re.escape(rule)) as refusal:
        Input(text, kind).linted(tmp_path)
    assert "\n" not in str(refusal.value)


def test_deltas_of_another_section_or_accountant_are_not_judged(tmp_path):
    text = "noise_multiplier: 1.1\ntarget_delta: {}\nstopping:\n  delta: 0.001\n"
    assert Input(text.format("1e-6"), "yaml").linted(tmp_path).alarms == []
    (alarm,) = Input(text.format("0.01"), "yaml").linted(tmp_path).alarms
    assert alarm.code == "delta"
    assert alarm.line == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f(3)", 3),
        ("a = 2\nb = a * 3\nf(b + 1)", 7),
        ("a = 1\na = 2\nf(a)", UNKNOWN),
        ("a = 1\nf(a)\na = 2", UNKNOWN),
        ("a = 1\nif x:\n    a = 2\nf(a)", UNKNOWN),
        ("if x:\n    a = 2\nelse:\n    a = 3\nf(a)", UNKNOWN),
        ("a = 1; f(a)", 1),
        ("a = 1\nfor i in y:\n    f(a)\n    a *= 2", UNKNOWN),
        ("a = 1\na += 1\nf(a)", UNKNOWN),
        ("import os\nf(os.environ['A'])", UNKNOWN),
        ("f(args.noise)", UNKNOWN),
        ("x = 5\ny = [f(x) for x in z]", UNKNOWN),
        ("a = 1\nif (a := 2):\n    f(a)", UNKNOWN),
        ("def g(n=1):\n    f(n)\ng()", UNKNOWN),
        ("def g(n):\n    f(n)\ng(2)", 2),
        ("def g(n):\n    f(n)\ng(n=2)", 2),
        ("def g(n=1):\n    f(n)\ng(2)\ng(3)", UNKNOWN),
        ("def g(n=1):\n    f(n)", UNKNOWN),
        ("n = 10\ndef g():\n    f(n)", 10),
        ("def g():\n    f(n)\nn = 10", 10),
        ("n = 10\ndef g(n):\n    f(n)", UNKNOWN),
        ("def g(n):\n    f(n)\ndef h(n):\n    pass\ng(2)", UNKNOWN),
        ("def g(**n):\n    f(n)\ng(n=3)", UNKNOWN),
        ("def g(m, n):\n    f(n)\ng(*x, 2)", UNKNOWN),
        ("a = 1\n[a := i for i in x]\nf(a)", UNKNOWN),
        ("a = 1\nfor a in x:\n    pass\nf(a)", UNKNOWN),
        ("a = 1\nmatch x:\n    case [*a]:\n        pass\nf(a)", UNKNOWN),
        ("a = 1\nmatch x:\n    case {**a}:\n        pass\nf(a)", UNKNOWN),
        ("*b, a = 1, 2, 3\nf(a)", UNKNOWN),
        ("a = 1\ndel a\nf(a)", UNKNOWN),
        ("a = 1\nimport b as a\nf(a)", UNKNOWN),
        ("a = 1\nfrom b import *\nf(a)", UNKNOWN),
        ("a = 1\ntry:\n    g()\nexcept E as a:\n    pass\nf(a)", UNKNOWN),
        ("a = 1\nglobals().update(a=2)\nf(a)", UNKNOWN),
        ("a = 1\nexec(x)\nf(a)", UNKNOWN),
        ("a = 1\nclass C:\n    a = 2\nf(a)", UNKNOWN),
        ("a = [1]\nf(a)", UNKNOWN),
        ("a, b = 1, 2\nf(b)", 2),
        ("f(1 / 0)", UNKNOWN),
        ("f(9 ** 9 ** 9)", UNKNOWN),
        ("N = 60000\nDELTA = 1 / N ** 0.9\nf(DELTA)", 1 / 60000**0.9),
        ("import math\nf(math.ceil(1.5))", 2),
        ("a = b\nb = a\nf(a)", UNKNOWN),
        ("a = 1\ndef g():\n    global a\n    a = 2\nf(a)", UNKNOWN),
        ("f('1')", "1"),
        ("a = [1]\na.append(2)\nf(a)", UNKNOWN),
        ("with o() as a:\n    f(a)", "a call"),
        ("a, b = g()\nf(b)", "a call"),
    ],
)
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
        ("f()", 1),
        ("for i in range(3):\n    f()", 3),
        ("for i in range(2, 5):\n    f()", 3),
        ("for i in range(0, 9, 2):\n    f()", float("inf")),
        ("for i in tqdm(range(3)):\n    f()", 3),
        ("for i in x:\n    f()", float("inf")),
        ("while x:\n    f()", float("inf")),
        ("for i in range(2):\n    for j in range(5):\n        f()", 10),
        ("def g():\n    f()\nfor i in range(4):\n    g()", 4),
        ("def g():\n    f()", UNKNOWN),
        ("def g():\n    f()\ng()\ng()", float("inf")),
        ("def g():\n    f()\nh(g)\ng()", UNKNOWN),
        ("class C:\n    def fit(self):\n        f()", float("inf")),
        ("class C:\n    def other(self):\n        f()", UNKNOWN),
        ("@app.train()\ndef t(m):\n    f()", float("inf")),
        ("def g():\n    f()\n    g()", UNKNOWN),
        ("if x:\n    f()", 1),
        ("[f() for i in x]", UNKNOWN),
        ("lambda: f()", UNKNOWN),
    ],
)
def test_how_often_a_call_runs(text, count):
    script = Script(text)
    (call,) = script.named("f")
    assert times(script, call.node) == count


def test_a_script_is_not_executed(tmp_path):
    Script(f"open({str(tmp_path / 'made')!r}, 'w').close()\nraise SystemExit(9)")
    assert list(tmp_path.iterdir()) == []
