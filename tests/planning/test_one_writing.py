"""Formulas of bounds have one writing: planner and ``explain`` compute the same one."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

import privplan
from privplan.planning.explain import explain
from privplan.planning.solver import solve
from tests.planning.problems import make_spec

PACKAGE = Path(privplan.__file__).parent
# Modules whose formulas nothing else may write again, by functions or all of them.
FORMULAS = {
    "planning/theorem_3.py": None,
    "planning/error.py": ("squared_noise_multiplier", "error_terms"),
    "accounting/closed_form.py": ("squared_noise_factor",),
}
# A product of two quantities is no formula. From so many operations on it is one, if it
# has a number other than an exponent of 2, or a difference: else others look alike.
LEAST_OPERATIONS = 3
TELLING = re.compile(r"Sub|(?<!\S)(?!2\b)[\d.]+")


def operands(node: ast.AST, operator: type[ast.operator]) -> list[ast.AST]:
    """What a sum or a product has in all its brackets."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, operator):
        return [*operands(node.left, operator), *operands(node.right, operator)]
    return [node]


def shape(node: ast.AST, constants: dict[str, float]) -> str:
    """An expression without names and order: its operations and numbers."""
    match node:
        case ast.BinOp(op=ast.Add() | ast.Mult() as operator):
            terms = operands(node, type(operator))
            operand_shapes = sorted(shape(term, constants) for term in terms)
            return f"({type(operator).__name__} {' '.join(operand_shapes)})"
        case ast.BinOp(left, operator, right):
            operand_shapes = [shape(left, constants), shape(right, constants)]
            return f"({type(operator).__name__} {' '.join(operand_shapes)})"
        case ast.Constant(int() | float() as value):
            return f"{float(value):g}"
        case ast.Name(name) if name in constants:
            return f"{constants[name]:g}"
    return "x"


def shapes(tree: ast.AST, module: ast.Module) -> list[str]:
    """Shapes of the expressions of a module's part that have enough operations."""
    constants: dict[str, float] = {}
    for node in module.body:
        match node:
            case ast.Assign([ast.Name(name)], ast.Constant(int() | float() as value)):
                constants[name] = value
    texts = [shape(node, constants) for node in ast.walk(tree)]
    long_texts = [text for text in texts if text.count("(") >= LEAST_OPERATIONS]
    return [text for text in long_texts if TELLING.search(text)]


def formulas() -> dict[str, str]:
    """Shapes of all formulas, with the module that has them."""
    modules: dict[str, str] = {}
    for name, functions in FORMULAS.items():
        module = ast.parse((PACKAGE / name).read_text())
        for node in module.body:
            is_formula = isinstance(node, ast.FunctionDef) and (
                functions is None or node.name in functions
            )
            if is_formula:
                modules |= dict.fromkeys(shapes(node, module), name)
    return modules


def second_writings(sources: dict[str, str]) -> list[str]:
    """Places that have a formula's shape beside the formula itself."""
    modules = formulas()
    counts = Counter[str]()
    lines: list[str] = []
    for name, source in sources.items():
        module = ast.parse(source)
        for text in shapes(module, module):
            if text in modules:
                counts[text] += 1
                if name != modules[text] or counts[text] > 1:
                    lines.append(f"{name}: {text}")
    return lines


def sources_of_planner() -> dict[str, str]:
    paths = [*PACKAGE.glob("planning/**/*.py"), *PACKAGE.glob("accounting/**/*.py")]
    return {str(path.relative_to(PACKAGE)): path.read_text() for path in paths}


def test_no_formula_of_a_bound_is_written_again():
    assert len(formulas()) >= 5
    assert second_writings(sources_of_planner()) == []


@pytest.mark.parametrize(
    "planted",
    [
        "mu4 = rate + rate / steps + length * 32",
        "error = np.sum((chosen - target) ** 2 / target)",
        "sigma = q * math.sqrt(7 * T * (eps + 2 * math.log(1 / delta)) / eps**2)",
        "mu1 = L * (4 * rate + 64 + steps * (rate * 4))",
        "lost = np.sum(w * (1 - k) ** 2)",
    ],
)
def test_a_planted_second_writing_is_found(planted):
    assert second_writings({"planning/planted.py": planted}) != []


CONSTANTS = {
    "smoothness": 2.0,
    "initial_gap": 3.0,
    "local_variance": 1e-4,
    "dissimilarity": 0.3,
}


@pytest.mark.parametrize(
    ("bound", "planning"),
    [
        ("problem_1", {"sparsification": [0.5, 0.9], "dropout_tolerance": 0.2}),
        ("problem_1", {"ratios": "uniform", "sparsification": "closed_form"}),
        ("gdpfed_plus", {"ratios": "bound", "sparsification": [0.5, 0.9]}),
        ("gdpfed_plus", {"ratios": "bound", "dropout_tolerance": 0.2}),
        ("balanced", {"ratios": "balanced", "release": "per_group"}),
    ],
)
def test_terms_of_the_plan_are_those_that_explain_shows(bound, planning):
    plan = solve(make_spec(planning={"constants": CONSTANTS, **planning}))
    rows = {}
    for row in explain(plan):
        if row.bound == bound and row.value is not None:
            rows[row.term] = row.value
    assert rows == pytest.approx(plan.bound, rel=1e-9)
