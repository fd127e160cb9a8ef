"""``privplan solve``: JSON, options, and what ends in one line."""

import json

import click
import pytest
import yaml

from privplan.cli import main
from privplan.plan import Plan
from privplan.record import RECORD
from privplan.spec.spec import Spec
from tests.command import answer, privplan, refused
from tests.planning.problems import members, spec_data


def spec_in(folder, **changes):
    folder.mkdir(exist_ok=True)
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(spec_data(**changes)))
    return path


def test_a_value_that_the_recipe_replaces_is_named_once(tmp_path):
    decides = ["clipping_norm", "server", "averaging"]
    changes = {"planning": {"accountant": "rdp"}, "clipping_norm": 5.0}
    path = spec_in(
        tmp_path, recipe={"source": "default", "decides": decides}, **changes
    )
    warnings = privplan("solve", path, "-o", tmp_path / "plan.json").stderr.splitlines()
    [line] = [warning for warning in warnings if "is replaced by" in warning]
    assert line.startswith(
        "warning: clipping_norm: 5.0 in the spec is replaced by 0.1, which the"
    )
    path.write_text(Plan.load(tmp_path / "plan.json").spec.model_dump_json())
    for again in (path, spec_in(tmp_path / "plain", **changes)):
        assert "is replaced by" not in privplan("solve", again).stderr


@pytest.mark.parametrize(
    "risk",
    [{"advantage": 1e-9}, {"true_positives": 0.010000001, "false_positives": 0.01}],
)
def test_a_risk_that_cannot_be_met_is_named(risk, tmp_path):
    output = tmp_path / "plan.json"
    groups = [{"name": "strict", "clients": 200, "risk": risk}]
    line = refused("solve", spec_in(tmp_path, groups=groups), "-o", output, code=3)
    assert line.startswith(f"groups.strict.risk: {next(iter(risk))}")
    assert not output.exists()


def test_nothing_is_written_when_solve_fails(tmp_path):
    output = tmp_path / "plan.json"
    for words, changes, reason in (
        (["-o", tmp_path], {}, "output: must be writable"),
        (["-o", output], {"rounds": 0}, "rounds: must be 1 or more, found 0"),
        (["-o", output, "--plot", tmp_path / "plan.doc"], {}, "plot: must end in"),
    ):
        assert reason in refused("solve", spec_in(tmp_path, **changes), *words)
        assert not output.exists()


@pytest.mark.parametrize("option", ["-o", "--plot"])
def test_no_file_that_is_read_is_written_over(option, tmp_path):
    budgets = tmp_path / "budgets.png"
    budgets.write_text("client,epsilon\n" + "".join(f"{n},1.5\n" for n in range(500)))
    spec = tmp_path / "spec.yaml"
    link = tmp_path / "link.png"
    link.symlink_to(spec)
    for place in (spec, link, tmp_path / "." / "spec.yaml", budgets):
        spec_in(tmp_path, groups=[], groups_from="budgets.png")
        line = refused("solve", spec, option, place)
        assert line.startswith("output: must be another file than what is read")
        assert Spec.load(spec).population == 500


@pytest.mark.parametrize("option", ["-o", "--plot"])
def test_nothing_is_written_into_a_run(option, tmp_path):
    """The plan of a run is what its verdict is about."""
    run = tmp_path / "run"
    run.mkdir()
    (run / RECORD).write_text("{}")
    (run / "plan.json").write_text("{}")
    spec = spec_in(tmp_path)
    for name in ("plan.json", "pictures/plan.png"):
        line = refused("solve", spec, option, run / name)
        assert line.startswith("output: must be outside the run folder")
    assert sorted(path.name for path in run.iterdir()) == ["plan.json", RECORD]
    assert (run / "plan.json").read_text() == "{}"


def test_a_plan_of_another_spec_that_is_replaced_is_named(tmp_path):
    output = tmp_path / "plan.json"
    answer("solve", spec_in(tmp_path, name="first"), "-o", output)
    digest = Plan.load(output).digest
    done = privplan("solve", spec_in(tmp_path, name="second"), "-o", output)
    assert done.exit_code == 0
    assert Plan.load(output).spec.name == "second"
    line = f"replaced {output}, which was plan {digest[:12]} of spec first"
    assert line in done.stderr
    # A spec that is solved anew replaces its own plan.
    spec = spec_in(tmp_path, name="second", rounds=7)
    assert "replaced" not in privplan("solve", spec, "-o", output).stderr


@pytest.mark.parametrize(("low", "high"), [(1e-12, 4.0), (1.0, 1e30)])
def test_budgets_that_are_too_far_apart_are_named(low, high, tmp_path):
    groups = [members("strict", 200, low), members("loose", 300, high)]
    line = refused("solve", spec_in(tmp_path, groups=groups), code=3)
    place = f"groups.strict.epsilon: {low:g} among budgets from {low:g} to {high:g}"
    assert line.startswith(f"{place} leaves the group a sampling ratio of")


def test_an_edited_certificate_is_named_in_a_short_line(tmp_path):
    output = tmp_path / "plan.json"
    answer("solve", spec_in(tmp_path), "-o", output)
    data = json.loads(output.read_text())
    data["certificate"][0]["epsilon_upper"] = 1e-9
    output.write_text(json.dumps(data))
    line = refused("explain", output)
    assert "certificate.0: epsilon_lower: must be at most" in line
    assert line.count("found") == 1
    assert len(line) < 260


def test_uploads_and_noise_are_kept(tmp_path):
    spec = spec_in(tmp_path)
    path = tmp_path / "plan.json"
    answer("solve", spec, "--for", "uploads=300", "-o", path)
    planned = Plan.load(path).spec
    assert planned.rounds * planned.expected_cohort <= 300 * 1.001

    # The norm of the noise over all coordinates.
    answer("solve", spec, "--for", "noise=5", "-o", path)
    plan = Plan.load(path)
    assert plan.mean_noise_std * plan.spec.model.parameters**0.5 <= 5 * 1.001


def test_solve_has_at_most_sixteen_options():
    _, command, _ = main.resolve_command(click.Context(main), ["solve"])
    params = command.get_params(click.Context(command))
    options = [param for param in params if isinstance(param, click.Option)]
    assert len(options) <= 16, [param.name for param in options]
