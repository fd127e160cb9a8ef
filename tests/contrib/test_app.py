"""The page of ``privplan app``: its numbers are those of solve, in the fields and in a browser."""

import os
import random
import re
import statistics
import time

import pytest
import yaml

from privplan import preset, solve
from privplan.contrib import app
from privplan.planning.explain import budget_values
from privplan.report.tables import answer
from tests.browser import Browser
from tests.command import refused

SPEC = {**preset("digits-planned").plain(), "rounds": 30, "cohort": 60}


@pytest.fixture
def desk():
    return app.Desk(SPEC)


def test_the_plan_of_the_fields_is_that_of_solve(desk):
    assert [one.path for one in desk.numbers[-3:]] == ["groups.loose.clients", "rounds", "cohort"]
    desk.typed |= {"groups.strict.epsilon": "1.5", "groups.loose.clients": "80", "rounds": "40"}
    shown = desk.shown()
    wanted = solve(yaml.safe_load(shown.spec))
    assert shown.plan.digest == wanted.digest
    assert (wanted.groups["strict"].epsilon, wanted.groups["loose"].clients) == (1.5, 80)
    assert (wanted.spec.rounds, wanted.spec.cohort) == (40, 60)
    page = app.plan_html(shown)
    for word in (word for row in answer(wanted)[1][2] for word in row):
        assert f">{word}</td>" in page


def test_a_wrong_value_is_a_sentence_beside_its_field_and_no_plan_is_shown(desk):
    wrong = {
        "groups.strict.epsilon": ("-1", "must be greater than 0, found -1"),
        "groups.loose.clients": ("ten<b>", "must be a number, found 'ten<b>'"),
        "rounds": ("2.5", "must be a whole number, found 2.5"),
        "cohort": ("1000", "must not exceed the population of 300 clients, found 1000.0"),
    }
    for path, (text, sentence) in wrong.items():
        before, desk.typed[path] = desk.typed[path], text
        shown = desk.shown()
        assert shown.faults[path].startswith(sentence)
        assert set(shown.faults) == {path}
        assert shown.plan is None
        assert "There is no plan" in app.plan_html(shown)
        assert "<b>" not in app.fault_html(path, shown)
        assert app.spec_html(shown) == app.more_html(shown) == ""
        desk.typed[path] = before
    assert desk.shown().plan is not None
    of_group = desk._placed([("groups.medium", "epsilon: must be more"), ("odd", "is wrong")])
    assert of_group == {"groups.medium.epsilon": "must be more", "": "odd: is wrong"}


def test_sliders_offer_the_own_value_and_the_nearest(desk):
    epsilon, rounds = desk.numbers[0], desk.numbers[-2]
    assert {0.1, 1.5, 2, 40} <= set(epsilon.positions())
    assert all(one == int(one) for one in rounds.positions())
    assert [epsilon.nearest(one) for one in ("1.49", "9999", "x", "-1")] == [1.5, 40, 2, 2]


def test_one_more_epsilon_buys_what_two_plans_differ_by():
    plan = solve(SPEC)
    for one in budget_values(plan, more_by=1):
        given = next(group.epsilon for group in plan.groups if group.name == one.group)
        more = solve(plan.spec.replace(groups={one.group: {"epsilon": given + 1}}))
        assert one.objective_gain == pytest.approx(
            1 - more.objective.value / plan.objective.value, abs=2e-3
        )
        assert one.noise_gain == pytest.approx(
            1 - more.mean_noise_std / plan.mean_noise_std, abs=2e-3
        )


def test_a_faulty_spec_is_refused_before_anything_is_served(tmp_path):
    pytest.importorskip("marimo")
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump({**SPEC, "rounds": 0}))
    assert "rounds: must be" in refused("app", tmp_path / "spec.yaml")


THUMBS = """[...document.querySelectorAll("marimo-slider")]
  .map((one) => one.shadowRoot.querySelector("[role=slider]"))
  .filter((one) => one && one.getBoundingClientRect().width > 0)"""
MOVE = """new Promise((done) => {
  const words = (id) => document.querySelector(id)?.textContent ?? "";
  const seen = () => words("#state") + words("#law-plan"), before = seen();
  const whole = words("#spec"), thumb = THUMBS[AT], start = performance.now();
  const each = new KeyboardEvent("keydown", {key: KEY, bubbles: true, composed: true});
  let first = null;
  thumb.focus();
  thumb.dispatchEvent(each);
  const look = () => {
    if (first === null && seen() !== before) first = performance.now() - start;
    if (first !== null && words("#spec") !== whole) return done(first);
    setTimeout(look, performance.now() - start > 2e4 ? done(null) : 5);
  };
  look();
})""".replace("THUMBS", THUMBS)


@pytest.mark.slow
def test_the_page_answers_moves_with_the_numbers_of_solve(tmp_path):
    pytest.importorskip("marimo")
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    port, draw, took = app.free_port(0), random.Random(1), []
    server = app.serve(str(tmp_path), str(tmp_path / "spec.yaml"), None, port)
    try:
        while not app.answers(port):
            time.sleep(0.1)
        with Browser(tmp_path / "profile") as browser:
            browser.call("Page.navigate", url=f"http://{app.HOST}:{port}")
            while not browser.run('!!document.querySelector("#spec")'):
                time.sleep(0.2)
            assert browser.run(f"({THUMBS}).length") == len(app.Desk(SPEC).numbers)
            for _ in range(200):
                key = draw.choice(["ArrowLeft", "ArrowRight"])
                move = MOVE.replace("AT", str(draw.randrange(8))).replace("KEY", f'"{key}"')
                took.append(browser.run(move))
            text = browser.run('document.querySelector("#spec").textContent')
            cells = browser.run(
                '[...document.querySelectorAll("#plan td")].map((one) => one.textContent)'
            )
            assert cells == [
                word for row in answer(solve(yaml.safe_load(text)))[1][2] for word in row
            ]
            assert browser.errors == []
            hosts = {re.match(r"\w+:(//[^/]+)?", one)[0] for one in browser.requests}
            assert hosts <= {f"http://{app.HOST}:{port}", "data:", "blob:", "about:"}
    finally:
        server.terminate()
        server.wait()
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    print(f"median of 50 moves {statistics.median(took[:50]):.0f} ms, of 200 "
          f"{statistics.median(took):.0f} ms, busy {busy:.1f}")  # fmt: skip
    assert statistics.median(took[:50]) <= 300 * busy
