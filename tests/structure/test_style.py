"""No file breaks a rule of ``benchmarks/style.py``."""

import pytest

from benchmarks import style

MANY_NAMES = "\n".join(f"    name_{number} = number" for number in range(16))
MANY_STATEMENTS = "\n".join("    call()" for _ in range(51))
MANY_BRANCHES = "\n".join(
    f"    if x == {number}:\n        call()" for number in range(13)
)


def test_no_file_breaks_a_rule():
    broken = style.broken_files(style.tracked())
    lines = [
        f"{name}:{file_faults[0].line}: {file_faults[0].rule}: {file_faults[0].detail}"
        for name, file_faults in broken.items()
    ]
    assert lines == [], "all faults: python benchmarks/style.py FILE"


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("low, names = 0, []", "packed assignment"),
        ("self.low, self.names = 0, []", "packed assignment"),
        ("low, high = (0, x) if x else (x, 1)", "packed assignment"),
        ("[size for x in data if (size := len(x))]", "walrus in comprehension"),
        ("[[y for y in x] for x in data]", "nested comprehension"),
        ("[y for x in data for y in x]", "nested comprehension"),
        ("any(x in names for x in [y for y in data])", "nested comprehension"),
        ("1 if x else 2 if y else 3", "nested conditional expression"),
        ("f(1 if x else 2) if y else 3", "nested conditional expression"),
        ("'text' * (x > 1)", "multiplied by a truth value"),
        ("f'{x}' * bool(x)", "multiplied by a truth value"),
        ("['row'] * (not x)", "multiplied by a truth value"),
        ("('no', 'yes')[x > 1]", "indexed by a truth value"),
        ("one = 1", "vague name"),
        ("for at in rows: pass", "vague name"),
        ("def largest(given): pass", "vague name"),
        ("self.own = x", "vague name"),
        ("def most(): pass", "vague name"),
        ("_FAR = 3", "vague name"),
        ("other = 3", "vague name"),
        ("class Verdict:\n    def judge(self):\n        kept = 1", "vague name"),
        (f"def many(number):\n{MANY_NAMES}", "too many local names"),
        (f"def many():\n{MANY_STATEMENTS}", "too many statements"),
        (f"def many(x):\n{MANY_BRANCHES}", "too many branches"),
        ("def many(a, b, c, d, e, f, g, h, i): pass", "too many arguments"),
        (
            "def _many(*, a, b=0, c=0, d=0, e=0, f=0, g=0, h=0, i=0): pass",
            "too many arguments",
        ),
        ("call(1,\n  2,\n  3)  # fmt: skip", "fmt: skip"),
        ("rows = [1,\n  2]  # fmt: skip", "fmt: skip"),
        (f"text = '{'word ' * 20}'", "long line"),
        (f"# {'word ' * 18}", "long line"),
    ],
)
def test_a_planted_fault_is_reported(code, rule):
    assert rule in [fault.rule for fault in style.faults(code)]


@pytest.mark.parametrize(
    "code",
    [
        "low, high = high, low",
        "a, b = b, a % b",
        "low, high = bounds(x)",
        "[x for x in data if x]",
        "1 if x else 2",
        "'-' * width",
        "mask = values * (values > 0)",
        "class Row:\n    def __eq__(self, other):\n        return self.x == other.x",
        "@click.command('train')\n@click.option('--a')\ndef many(a, b, c, d, e, f, g, h, i): pass",
        "def many(*, a, b=0, c=0, d=0, e=0, f=0, g=0, h=0, i=0): pass",
        "class Verdict:\n    kept: bool",
        "class Verdict:\n    @property\n    def kept(self): pass",
        "rows = [\n  (1, 2),\n  (3, 4),\n  (5, 6),\n]  # fmt: skip",
        "@parametrize('x', [\n  (1, 2),\n  (3, 4),\n  (5, 6),\n])  # fmt: skip\ndef test(x): pass",
    ],
)
def test_clear_code_has_no_fault(code):
    assert style.faults(code) == []


def test_the_density_of_a_file():
    density = style.Density()
    density.add('"""Doc."""\n\na, b = 1, 37\nfound = 1 if a else 41\nLIMIT = 43\n')
    assert density.code_lines == 3
    assert density.tuples == 1
    assert density.conditional_expressions == 1
    assert density.nested_comprehensions == 0
    row = density.row()
    # One of four names is vague, and one of five lines is a docstring.
    assert row["vague names, %"] == 25
    assert row["docstrings, %"] == 20


def test_a_number_in_an_assignment_of_a_module_explains_itself():
    density = style.Density()
    density.add("LIMIT = 43\n\n\ndef f(x):\n    return 41 * x + 1\n")
    assert density.unexplained_numbers == 1
