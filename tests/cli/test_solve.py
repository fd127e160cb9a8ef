"""``privplan solve``: tables, JSON, pictures, and bad input in one line."""

import json
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from privplan.cli import main
from privplan.plan import Plan
from privplan.spec.spec import Spec
from tests.planning.problems import spec_data


def solve(folder: Path, *arguments: str, **changes: object) -> Result:
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(spec_data(**changes)))
    return CliRunner().invoke(main, ["solve", str(path), *arguments])


def test_json_is_the_plan(tmp_path: Path) -> None:
    output = tmp_path / "plan.json"
    done = solve(tmp_path, "--format", "json", "-o", str(output))
    assert done.exit_code == 0, done.stderr
    assert Plan.parse(json.loads(done.stdout)) == Plan.load(output)


def test_warnings_go_to_standard_error(tmp_path: Path) -> None:
    done = solve(tmp_path, "--format", "json", delta=0.01)
    assert "warning: groups.loose.delta" in done.stderr
    json.loads(done.stdout)


@pytest.mark.parametrize(
    "risk", [{"advantage": 1e-9}, {"true_positives": 0.010000001, "false_positives": 0.01}]
)
def test_a_risk_that_cannot_be_met_is_named(risk: dict[str, float], tmp_path: Path) -> None:
    output = tmp_path / "plan.json"
    groups = [{"name": "strict", "clients": 200, "risk": risk}]
    done = solve(tmp_path, "-o", str(output), groups=groups)
    assert done.exit_code == 3
    [line] = done.stderr.splitlines()
    assert line.startswith(f"privplan: groups.strict.risk: {next(iter(risk))}")
    assert not output.exists()


def test_nothing_is_written_when_solve_fails(tmp_path: Path) -> None:
    output = tmp_path / "plan.json"
    for words, changes, said in (
        (["-o", str(tmp_path)], {}, "output: must be writable"),
        (["-o", str(output)], {"rounds": 0}, "rounds: must be 1 or more, found 0"),
        (["-o", str(output), "--plot", str(tmp_path / "plan.doc")], {}, "plot: must end in"),
    ):
        done = solve(tmp_path, *words, **changes)
        assert done.exit_code == 2
        [line] = done.stderr.splitlines()
        assert said in line
        assert not output.exists()


@pytest.mark.parametrize("option", ["-o", "--plot"])
def test_no_file_that_is_read_is_written_over(option: str, tmp_path: Path) -> None:
    budgets = tmp_path / "budgets.png"
    budgets.write_text("client,epsilon\n" + "".join(f"{n},1.5\n" for n in range(500)))
    spec, link = tmp_path / "spec.yaml", tmp_path / "link.png"
    link.symlink_to(spec)
    for place in (spec, link, tmp_path / "." / "spec.yaml", budgets):
        done = solve(tmp_path, option, str(place), groups=[], groups_from="budgets.png")
        assert done.exit_code == 2
        [line] = done.stderr.splitlines()
        assert line.startswith("privplan: output: must be another file than what is read")
        assert Spec.load(spec).population == 500


@pytest.mark.parametrize(("least", "most"), [(1e-12, 4.0), (1.0, 1e30)])
def test_budgets_that_are_too_far_apart_are_named(
    least: float, most: float, tmp_path: Path
) -> None:
    groups = [
        {"name": "strict", "clients": 200, "epsilon": least},
        {"name": "loose", "clients": 300, "epsilon": most},
    ]
    done = solve(tmp_path, groups=groups)
    assert done.exit_code == 3
    [line] = done.stderr.splitlines()
    said = f"groups.strict.epsilon: {least:g} among budgets from {least:g} to {most:g}"
    assert line.startswith(f"privplan: {said} leaves the group a sampling ratio of")


def test_an_edited_certificate_is_named_in_a_short_line(tmp_path: Path) -> None:
    output = tmp_path / "plan.json"
    assert solve(tmp_path, "-o", str(output)).exit_code == 0
    data = json.loads(output.read_text())
    data["certificate"][0]["epsilon_upper"] = 1e-9
    output.write_text(json.dumps(data))
    done = CliRunner().invoke(main, ["explain", str(output)])
    [line] = done.stderr.splitlines()
    assert "certificate.0: epsilon_lower: must be at most" in line
    assert line.count("found") == 1
    assert len(line) < 260


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ("--solve-for epsilon", "solve_for: needs --for noise or --for accuracy, found 'epsilon'"),
        ("--for accuracy=80", "for: needs --forecast PROXY, found 'accuracy=80'"),
        ("--for colour=3", "for: must be NAME=NUMBER with one of accuracy, noise, uploads, found"),
        ("--for noise=1 --from-book=b.sqlite", "for: cannot go with --from-book, found 'noise=1'"),
        ("--known-accuracy p=1", "known_accuracy: needs --forecast PROXY, found 'p=1'"),
        ("--rule exact", "rule: needs --from-book, found 'exact'"),
        ("--data x.npz", "solve --data: was removed in 0.2; use the numbers of privplan check-dat"),
    ],
)
def test_options_that_need_another_one_or_are_gone_are_refused(
    options: str, rule: str, tmp_path: Path
) -> None:
    failed = solve(tmp_path, *options.split())
    assert failed.exit_code == 2
    [line] = failed.stderr.splitlines()
    assert line.startswith(f"privplan: {rule}")


def test_uploads_and_noise_are_kept(tmp_path: Path) -> None:
    for target in ("uploads=300", "noise=5"):
        done = solve(tmp_path, "--for", target, "-o", str(tmp_path / "plan.json"))
        assert done.exit_code == 0, done.stderr
        plan, (name, _, value) = Plan.load(tmp_path / "plan.json"), target.partition("=")
        noise = plan.mean_noise_std * plan.spec.model.parameters**0.5
        found = plan.spec.rounds * plan.spec.expected_cohort if name == "uploads" else noise
        assert found <= float(value) * 1.001


def test_solve_has_at_most_fifteen_options() -> None:
    context = click.Context(main)
    _, command, _ = main.resolve_command(context, ["solve"])
    assert command is not None
    params = command.get_params(click.Context(command))
    options = [one for one in params if isinstance(one, click.Option)]
    assert len(options) <= 15, [one.name for one in options]
