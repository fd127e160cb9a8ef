"""What an optional package is missing for is one line that names its extra."""

import sys

import pytest
import yaml

import privplan
from privplan.planning.solver import solve
from privplan.report import show
from privplan.report.plots import plan_panels
from privplan.spec.spec import Spec
from privplan.visible import in_html
from tests.command import answer, refused
from tests.planning.problems import spec_data


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "plan.json"
    solve(Spec.parse(spec_data())).save(path)
    return path


def test_the_app_without_marimo_names_its_extra(plan_file, monkeypatch):
    monkeypatch.setitem(sys.modules, "marimo", None)
    assert "pip install 'privplan[app]'" in refused("app", plan_file)


def test_explain_without_sympy_says_all_but_formulas(plan_file, monkeypatch):
    monkeypatch.setitem(sys.modules, "sympy", None)
    *sentences, last_line = answer("explain", plan_file).splitlines()
    assert sentences[0].startswith("each client of strict is protected by epsilon at")
    assert last_line == (
        "the bounds by which papers plan: needs SymPy: pip install 'privplan[explain]'"
    )
    line = refused("explain", plan_file, "--format", "json")
    assert line.startswith("explain: needs SymPy: pip install 'privplan[explain]'")


@pytest.fixture
def without_matplotlib(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def test_a_picture_without_matplotlib_is_refused_before_it_costs(
    plan_file, tmp_path, monkeypatch, without_matplotlib
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec_data()))
    refusal = "plot: needs Matplotlib: pip install 'privplan[plots]', found "
    for words in (
        ("solve", "spec.yaml", "-o", "new.json", "--plot", "plan.png"),
        ("what-if", "spec.yaml", "strict=1,2", "-o", "folder"),
    ):
        assert refused(*words).startswith(refusal)
    assert not {"new.json", "folder"} & {path.name for path in tmp_path.iterdir()}
    with pytest.raises(privplan.PrivplanError, match=r"privplan\[plots\]"):
        privplan.Plan.load(plan_file).plot().draw("png")


def test_a_page_without_matplotlib_says_its_pictures_in_words(
    plan_file, tmp_path, without_matplotlib
):
    answer("report", plan_file, "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    plan = privplan.Plan.load(plan_file)
    for panel in plan_panels(plan):
        assert in_html(panel.alt) in page
    assert "<figure" in page
    assert "<svg" not in page
    assert "privplan[plots]" in page
    assert "<img" not in plan._repr_html_()


def test_what_if_without_pandas_is_a_list_that_draws(monkeypatch):
    monkeypatch.setattr(show, "find_spec", lambda name: None)
    rows = privplan.what_if(spec_data(), {"strict": [1.0]})
    assert [row["group"] for row in rows] == ["strict", "loose"]
    assert rows.plot().draw("png").startswith(b"\x89PNG")
