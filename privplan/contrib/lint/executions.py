"""How often a statement of a script runs, by the loops and the calls around it."""

from __future__ import annotations

import ast
import math
from functools import partial
from typing import Any

from privplan.contrib.lint.script import UNKNOWN, Script, whole
from privplan.contrib.lint.syntax import FUNCTIONS, LOOPS

# The method that a federated framework runs once in every round, and the decorator of
# one.
_METHOD = "fit"
_DECORATOR = ".train"


def several(script: Script, node: ast.AST) -> bool:
    """Whether a node runs several times when the script runs once."""
    count = times(script, node)
    return count is not UNKNOWN and count > 1


def times(script: Script, node: ast.AST) -> Any:
    """How often a node runs in one run; at most, where a branch may skip it.

    Returns:
        The number; infinite for what runs several times, nobody knows how often;
        ``UNKNOWN`` for what is not determined at all.
    """
    count: float = 1
    for block in script.blocks(node):
        if isinstance(block, LOOPS):
            count *= _repetitions(script, block)
        elif isinstance(block, FUNCTIONS):
            calls = script.once((times, block), partial(_calls, script, block))
            if calls is UNKNOWN:
                if count > 1:
                    return math.inf
                return UNKNOWN
            count *= calls
        elif isinstance(block, ast.ClassDef | ast.expr):
            return UNKNOWN
    return count


def looped_over(script: Script, loop: ast.AST) -> ast.AST | None:
    """What a ``for`` loop goes over, without ``enumerate`` and progress bars."""
    node = getattr(loop, "iter", None)
    while isinstance(node, ast.Call) and script.name_of(node) in ("enumerate", "tqdm"):
        node = node.args[0] if node.args else None
    return node


def _repetitions(script: Script, loop: ast.AST) -> float:
    """How often a loop over ``range`` runs."""
    node = looped_over(script, loop)
    if not isinstance(node, ast.Call) or script.name_of(node) not in (
        "range",
        "trange",
    ):
        return math.inf
    ends = [whole(script.value(argument)) for argument in node.args]
    match ends:
        case [int(end)]:
            return max(end, 0)
        case [int(start), int(end)]:
            return max(end - start, 0)
    return math.inf


def _calls(script: Script, function: ast.AST) -> Any:
    """How often a function is called; one that calls itself is not determined."""
    decorators = getattr(function, "decorator_list", ())
    paths = [script.path(getattr(node, "func", node)) for node in decorators]
    method = isinstance(script.scope[function], ast.ClassDef)
    in_rounds = method and getattr(function, "name", "") == _METHOD
    callers = script.callers(function) or []
    if (
        in_rounds
        or any(path.endswith(_DECORATOR) for path in paths)
        or len(callers) > 1
    ):
        return math.inf
    if callers:
        return times(script, callers[0].node)
    return UNKNOWN
