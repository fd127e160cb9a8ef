"""The examples of docs/sensitivity-tests.md, and the command that it shows."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulate.contrib.sensitivity.__main__ import command
from simulate.contrib.sensitivity.neighbours import SensitivityReport, Violation

PAGE = (Path(__file__).parents[3] / "docs" / "sensitivity-tests.md").read_text()
[EXAMPLE] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_runs(capsys):
    exec(compile(EXAMPLE, "sensitivity-tests.md", "exec"), {})
    assert "per group 57 84 1.000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("violations", "code"), [((), 0), ((Violation("model", "strict, removed", "7 differ"),), 4)]
)
def test_the_command_answers_with_an_exit_code(monkeypatch, violations, code):
    report = SensitivityReport("planned", "per group", "client", 45, 66, 0.99, violations)
    monkeypatch.setattr(
        "simulate.contrib.sensitivity.__main__.check_sensitivity", lambda *given, **more: (report,)
    )
    done = CliRunner().invoke(command, ["Planned"])
    assert done.exit_code == code
    assert ("planned (per group): model: strict, removed: 7 differ" in done.output) == bool(code)
