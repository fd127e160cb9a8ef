"""The plain form of private training, the only one whose steps are counted.

One loop goes over all private batches. Each of its statements moves a batch, calls the
private model or a loss that is a mean over examples, or steps. No other loop goes over
data, and what is made of a batch is named nowhere else. So neither examples nor batches
meet, but in the sum that gets the noise.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from privplan.contrib.lint import python
from privplan.contrib.lint.executions import looped_over, times
from privplan.contrib.lint.reading import Findings, Options
from privplan.contrib.lint.script import Result, Script, number
from privplan.contrib.lint.syntax import Call, place

_SCHEDULERS = "torch.optim.lr_scheduler."
_MOVES = ("to", "cuda")


def epochs(
    script: Script, private: Call, options: Options, findings: Findings
) -> float | None:
    """How often the private optimiser steps through all batches.

    Args:
        script: The parsed script.
        private: The call that makes model, optimiser and loader private.
        options: Values from the command line.
        findings: Gets the count and its line, or what makes it open.

    Returns:
        The number; None where the training is not plain, or the number is open.
    """
    steps = [call for call in script.named("step") if not _of_scheduler(script, call)]
    passes = script.named("backward")
    blocks = [[*script.blocks(call.node)] for call in (*steps, *passes)]
    if len(steps) != 1 or len(passes) != 1 or blocks[0] != blocks[1]:
        findings.unknown("not one optimiser step after one backward pass, in one place")
        return None
    line = steps[0].line
    loop = blocks[0][0]
    loader = script.value(looped_over(script, loop))
    stepped = [script.value(steps[0].holder), loader]
    if not isinstance(loop, ast.For) or stepped != [
        Result(private, 1),
        Result(private, 2),
    ]:
        findings.unknown("not seen: the private optimiser steps over its loader", line)
        return None
    strange = [*_Loop(script, loop, private).strange()]
    for node in strange:
        text = ast.unparse(node).partition("\n")[0]
        findings.unknown(f"no part of plain training: {text}", place(node)[0])
    count = number(times(script, loop))
    if count is None and options.rounds is None:
        findings.unknown("how often the loop of the training steps runs", line)
    if strange or count is None:
        return None
    findings.condition(f"this loop over all batches runs {count:g} times", line)
    return count


def _of_scheduler(script: Script, call: Call) -> bool:
    """Whether a step is one of a learning rate's schedule."""
    value = script.value(call.holder)
    return isinstance(value, Result) and value.call.path.startswith(_SCHEDULERS)


class _Loop:
    """The loop of the training steps.

    Args:
        script: The parsed script.
        loop: The loop.
        private: The call that makes model, optimiser and loader private.
    """

    def __init__(self, script: Script, loop: ast.For, private: Call) -> None:
        self._script = script
        self._loop = loop
        self._model = Result(private, 0)
        self._inside = {*ast.walk(loop)}
        # names of the batch, and of what is made of it
        self._batch = {
            node.id
            for node in self._inside
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }

    def strange(self) -> Iterator[ast.AST]:
        """What is no part of plain training, in the loop and around it."""
        loop = self._loop
        yield from loop.orelse
        for statement in loop.body:
            if not self._plain(statement):
                yield statement
        for node in self._script.nodes:
            if node not in self._inside and self._meets_data(node):
                yield self._script.statement[node]

    def _meets_data(self, node: ast.AST) -> bool:
        """Whether a node outside of the loop may use records, or a batch of them."""
        match node:
            case ast.For():
                return not self._counts(node)
            case ast.Name() if node.id in self._batch - {"_"}:
                return self._script.home(node) is self._script.scope[self._loop]
            case ast.Call():
                return bool(self._script.value(node.func) == self._model)
            case ast.Assign(targets=[ast.Tuple() | ast.List()], value=ast.Name()):
                return True
        return False

    def _counts(self, loop: ast.For) -> bool:
        """Whether a loop goes over a range of numbers."""
        numbers = looped_over(self._script, loop)
        called = isinstance(numbers, ast.Call) and self._script.name_of(numbers)
        return called in ("range", "trange")

    def _plain(self, statement: ast.stmt) -> bool:
        match statement:
            case ast.Assign():
                return self._by_example(statement.value)
            case ast.Expr(ast.Call(ast.Attribute(attr="backward") as method)):
                return self._by_example(method.value)
            case ast.Expr(ast.Call(ast.Attribute(attr="step" | "zero_grad"))):
                return True
        return False

    def _by_example(self, node: ast.expr) -> bool:
        """Whether a value is made of each example, or is the loss of all of them."""
        match node:
            case ast.Name():
                return node.id in self._batch
            case ast.Tuple():
                return all(map(self._by_example, node.elts))
            case ast.Call(ast.Attribute(attr=method) as moved) if method in _MOVES:
                return self._by_example(moved.value)
            case ast.Call(keywords=[]):
                model = self._script.value(node.func) == self._model
                called = (model and len(node.args) == 1) or self._is_loss(node.func)
                return called and all(map(self._by_example, node.args))
        return False

    def _is_loss(self, function: ast.expr) -> bool:
        """Whether a function is a loss of PyTorch, or the result of its class."""
        value = self._script.value(function)
        maker = value.call.path if isinstance(value, Result) else ""
        paths = (self._script.path(function), maker)
        return any(map(python.LOSSES.fullmatch, paths))
