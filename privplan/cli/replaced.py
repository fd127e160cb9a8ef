"""Warnings of commands that read a spec: values in it that its recipe decides instead."""

from __future__ import annotations

from pathlib import Path

from privplan.cli import render


def warn_replaced(path: str | Path) -> None:
    """Warn of values of a spec's file that its recipe replaces, as ``solve`` does.

    The spec is solved for that only where it holds a value that its recipe decides.

    Args:
        path: file of a valid spec.
    """
    from privplan.errors import PrivplanError
    from privplan.io.files import read_text
    from privplan.io.text import load_yaml
    from privplan.planning.recipe import decides_given, replaced_lines
    from privplan.planning.solver import solve
    from privplan.spec.spec import Spec

    data = load_yaml(read_text(path, "spec"), "spec")
    try:
        spec = Spec.load(path)
        if not decides_given(data, spec):
            return
        lines = replaced_lines(data, solve(spec, second_opinion=False))
    except PrivplanError:  # no plan whose values could differ
        return
    for line in lines:
        render.warn(line)
