"""The options that docs/forecast.md names are those of the commands."""

from __future__ import annotations

import re
from pathlib import Path

from privplan.cli.plan import frontier_command as frontier
from privplan.cli.plan import solve_command as solve
from privplan.cli.plan import what_if_command as what_if
from simulate.cli.forecast_proxy import command as forecast_proxy

PAGE = (Path(__file__).parents[2] / "docs" / "forecast.md").read_text(encoding="utf-8")


def test_the_options_of_the_page_exist() -> None:
    commands = (solve, what_if, frontier, forecast_proxy)
    known = {name for one in commands for parameter in one.params for name in parameter.opts}
    assert set(re.findall(r"--[a-z-]+[a-z]", PAGE)) <= known
    assert "--forecast" in {name for one in what_if.params for name in one.opts}
    assert "--forecast" in {name for one in frontier.params for name in one.opts}
