"""Values of a script are those that every execution has, or not determined."""

import pytest

from privplan.contrib.lint.script import UNKNOWN, Script


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
