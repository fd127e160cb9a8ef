"""Files as people write them: no false alarm, no bare number, nothing unnamed."""

import time

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

from privplan.contrib.lint.judge import lint
from privplan.contrib.lint.reading import Options
from privplan.contrib.lint.script import Script
from privplan.errors import InputError
from tests.contrib.lint.inputs import (
    DATA,
    PUBLIC,
    TABLE,
    Input,
    configuration_of,
    file_of,
    public_of,
    row_of,
)
from tests.contrib.lint.test_corpus import BROKEN, SOUND


def said_of(findings):
    return " ".join(
        str(line) for line in (*findings.undetermined, *findings.not_understood)
    )


@pytest.mark.parametrize("name", TABLE["rows"])
def test_a_row_that_was_judged_wrongly(name, tmp_path):
    row = TABLE["rows"][name]
    findings = row_of(name).linted(tmp_path)
    if "epochs" in row:
        assert findings.mechanism.rounds == 100 * row["epochs"]
        event = dp_accounting.PoissonSampledDpEvent(
            0.01, dp_accounting.GaussianDpEvent(1.1)
        )
        composed = PLDAccountant().compose(event, 100 * row["epochs"])
        expected = composed.get_epsilon(1e-5)
        assert float(findings.epsilon["add_remove"]) == pytest.approx(
            expected, rel=5e-3
        )
        return
    assert findings.epsilon == {}
    for key, alarms in (("alarm", findings.alarms), ("look", findings.look_at)):
        assert [alarm.code for alarm in alarms] == ([row[key]] if key in row else [])
    assert row.get("because", "") in said_of(findings)


def test_a_plan_is_no_configuration(tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text('{"spec": {}, "certificate": []}')
    with pytest.raises(InputError, match="must be a Python file, not a plan"):
        lint(str(plan), "nvflare", Options())


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_input(name, tmp_path):
    row = PUBLIC[name]
    if row.get("foreign"):
        with pytest.raises(InputError, match="shows nothing of it"):
            public_of(name).linted(tmp_path)
        return
    findings = public_of(name).linted(tmp_path)
    assert findings.alarms == []
    assert bool(findings.epsilon) == row.get("epsilon", False), said_of(findings)
    if findings.epsilon:
        texts = " ".join(str(line) for line in findings.read)
        for value in (
            "noise multiplier 1.1",
            "batch size 600",
            "records 60000",
            "delta 1e-05",
        ):
            assert value in texts
        assert all(
            line.line for line in findings.read if "noise multiplier" in line.text
        )
        assert findings.undetermined == []
        assert findings.not_understood == []
    for words in row.get("named", ()):
        assert words in said_of(findings)


def test_there_are_sixty_public_inputs():
    assert len(PUBLIC) >= 60


INPUTS = {
    **{f"table {name}": row_of(name) for name in TABLE["rows"]},
    **{name: public_of(name) for name in PUBLIC if not PUBLIC[name].get("foreign")},
    **{f"documented {name}": configuration_of(name) for name in DATA["rows"]},
    **{f"corpus {case.file}": file_of(case) for case in (*BROKEN, *SOUND)},
}


def answer_of(item, folder):
    """What is answered, but for the numbers of lines."""
    findings = item.linted(folder)
    return (
        sorted(alarm.code for alarm in findings.alarms),
        sorted(alarm.code for alarm in findings.look_at),
        findings.epsilon,
        sorted(line.text for line in findings.undetermined),
        sorted(line.text for line in findings.not_understood),
        sorted(line.text for line in findings.read),
    )


@pytest.mark.parametrize(
    "name",
    [
        # The quick tests read every third input.
        pytest.param(name, marks=pytest.mark.slow if index % 3 else ())
        for index, name in enumerate(INPUTS)
    ],
)
def test_other_forms_of_the_same_content_have_the_same_answer(name, tmp_path):
    expected = answer_of(INPUTS[name], tmp_path)
    for form, item in INPUTS[name].forms():
        assert answer_of(item, tmp_path) == expected, form


LINE = {
    "assignments": lambda n: [f"a{i} = {i}" for i in range(n)],
    "one name": lambda n: ["a = 0"] + [f"a = a + {i}" for i in range(n)],
    "a chain of functions": lambda n: (
        ["def f0(x):\n    return x"]
        + [f"def f{i}(x):\n    return f{i - 1}(x)" for i in range(1, n // 2)]
    ),
    "calls of one function": lambda n: (
        ["def f(x):\n    g(x)"] + [f"f({i})" for i in range(n)]
    ),
    "steps": lambda n: ["opt.step()"] * n,
    "engines": lambda n: (
        [
            "engine = PrivacyEngine()",
            "m = engine.make_private(module=m)",
        ]
        * (n // 2)
    ),
    "a long loop": lambda n: [
        "for x in y:",
        "    opt.step()",
        *["    a.backward()"] * n,
    ],
    "names of a loop": lambda n: [
        "for x, z in y:\n    z.backward()\n    opt.step()",
        *["print(x)"] * n,
    ],
    "loops": lambda n: ["for i in range(3):\n    a = f(a)"] * (n // 2),
    "one expression": lambda n: ["a = (1"] + ["+ f(1)"] * 800 + [")"],
    "strategies": lambda n: (
        [
            "s = FedAvg(fraction_fit=0.1)",
            "s = DifferentialPrivacyServerSideFixedClipping(s, 1, 1, 10)",
        ]
        * (n // 2)
    ),
}


# The quick tests read these shapes of a long file.
QUICK_SHAPES = ("assignments", "a chain of functions", "a long loop", "strategies")


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(shape, marks=() if shape in QUICK_SHAPES else pytest.mark.slow)
        for shape in LINE
    ],
)
def test_2600_lines_take_two_seconds(shape, tmp_path):
    framework = "flower" if shape == "strategies" else "opacus"
    text = "import flwr, opacus\n" + "\n".join(LINE[shape](2600))
    path = Input(text).written(tmp_path)
    start = time.process_time()
    lint(str(path), framework, Options())
    assert time.process_time() - start < 2


def test_a_name_is_understood_only_by_its_whole_path(tmp_path):
    text = "from opacus_like import PrivacyEngine\nPrivacyEngine().make_private(module=m)\n"
    findings = Input(text).linted(tmp_path)
    named = [line.text for line in findings.not_understood]
    assert "not understood: opacus_like.PrivacyEngine" in named
    assert Script(text).imports == {"PrivacyEngine": "opacus_like.PrivacyEngine"}
