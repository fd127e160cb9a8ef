"""What the command line prints: widths, verbosity, suggestions."""

import pytest

from privplan.cli import render
from tests.command import privplan, refused

ACCOUNT = ["account", "--noise-multiplier=1.5", "--sampling-ratio=.02", "--rounds=50"]


def _printed(capsys, columns, rows):
    render.table("", columns, rows)
    return capsys.readouterr().out


@pytest.mark.parametrize("width", ["80", "60"])
def test_tables_fit_the_columns(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", width)
    columns = ["group", "budget", "realised upper", "verdict", "what was found"]
    row = [
        "strict",
        "0.5000",
        "0.4931",
        "kept",
        "every group is within its budget, of 3 groups",
    ]
    shown = _printed(capsys, columns, [row])
    assert max(map(len, shown.splitlines())) <= int(width)
    assert {"0.5000", "0.4931", "strict"} <= set(shown.split())

    # Where a row is too wide, numbers and words stay whole, and text is folded.
    row = ["x" * 50, "0.123456789012", "1" * 20, "a b", "word", "0.9999"]
    words = set(_printed(capsys, [*columns, "plan"], [row]).split())
    assert words & set(row) == {"x" * 50, "0.123456789012", "1" * 20, "word"}


def test_an_archive_is_told_to_be_unpacked(tmp_path):
    (tmp_path / "run.zip").write_bytes(b"PK")
    answer = refused("verify", tmp_path / "run.zip")
    assert "not a packed file, which must be unpacked" in answer


def test_long_work_says_a_line_a_minute_where_no_bar_is_shown(monkeypatch, capsys):
    clock = iter([0, 30, 60, 90, 150, 151])
    monkeypatch.setattr(render.time, "monotonic", lambda: next(clock))
    with render.progress("rounds") as report:
        for done in (4, 5, 6, 7, 9, 10):  # four were done before
            report(done, 10)
    ends = (
        "5 of 10, about 3 minutes",
        "7 of 10, about 2 minutes",
        "9 of 10, about 1 minute",
    )
    assert capsys.readouterr().err == "".join(f"rounds: {end} left\n" for end in ends)


def test_work_of_some_seconds_says_no_time_that_is_left(monkeypatch, capsys):
    """Rounds of which only as many are executed as fit into 10 s."""
    clock = iter(range(0, 10_000, 30))
    monkeypatch.setattr(render.time, "monotonic", lambda: next(clock))
    with render.progress("rounds", limited=True) as report:
        for done in (0, 1, 2):
            report(done, 1000)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("where", [0, 1])
@pytest.mark.parametrize("option", ["-q", "--quiet"])
def test_quiet_leaves_the_result_only(option, where):
    words = [*ACCOUNT, "--delta=1e-5"]
    loud = privplan(*words)
    words.insert(where and len(words), option)
    quiet = privplan(*words)
    assert "warning: " in loud.stderr
    assert quiet.stderr == ""
    assert quiet.stdout == loud.stdout
    assert "warning: " in privplan(*ACCOUNT, "--delta=1e-5").stderr
    assert "delta" in refused("--quiet", *ACCOUNT, "--delta=2")
