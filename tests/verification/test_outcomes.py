"""The three outcomes: missing evidence is not shown, and no check passes without it."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from privplan.errors import InputError
from privplan.evidence.replay import ReplayReport
from privplan.record import RECORD, REPLAY
from privplan.report.verdicts import closing_lines, headline
from privplan.streams import Purpose, fingerprint, stream
from privplan.verification.verify import judge, load_run
from tests.command import verify
from tests.verification import honest_run


def forged(the_plan):
    """Releases made up from the plan and random numbers, without optional evidence."""
    releases = honest_run.releases(the_plan, seed=7)
    shares = [
        release.shares[0].model_copy(update={"participants": None})
        for release in releases
    ]
    return [
        release.model_copy(
            update={"shares": (share,), "noise_state": "", "residual": None}
        )
        for release, share in zip(releases, shares, strict=True)
    ]


def edit_record(folder, **changes):
    """Replace fields of ``record.json``."""
    data = json.loads((folder / RECORD).read_text())
    (folder / RECORD).write_text(json.dumps({**data, **changes}))


def names(verdict):
    """Required checks that are not shown."""
    return [check.name for check in verdict.not_shown]


def test_a_forged_run_without_optional_evidence_is_unverified(tmp_path):
    honest_run.write_run(tmp_path, forged(honest_run.plan()))
    edit_record(tmp_path, executed=None, chain="")
    done = verify(tmp_path, "--format=json")
    assert done.exit_code == 5
    verdict = json.loads(done.stdout)
    assert verdict["outcome"] == "unverified"
    assert verdict["kept"] is False
    missing = {
        row["name"]: row["missing"] for row in verdict["checks"] if row["missing"]
    }
    expected = {
        "ledger": ["the hash of the last line in the record"],
        "coordinates": ["the released coordinates in the record"],
        "noise fresh": ["states of the generator (60 of 60)"],
        "sums": ["residuals (60 of 60)"],
        "cohorts": ["participants (60 of 60)"],
        "participation": ["participants (60 of 60)"],
        "weights": ["the aggregation rule in the record"],
        "replay": ["rounds that were executed again"],
        "audit": ["canaries"],
    }
    assert {name: missing[name] for name in expected} == expected
    statistics = {"cohort independence", "noise coverage", "noise distribution"}
    assert statistics <= set(missing) - set(expected)
    shown = verify(tmp_path)
    assert shown.exit_code == 5
    last_line = (
        "unverified, not shown: ledger, coordinates, noise fresh, sums, cohorts, "
        "participation"
    )
    assert last_line in " ".join(shown.stdout.split())


def _without(**changes):
    return lambda release: release.model_copy(update=changes)


def _nobody(release):
    share = release.shares[0].model_copy(update={"participants": None})
    return release.model_copy(update={"shares": (share,)})


def _no_part_along(release):
    residual = release.residual.model_copy(update={"along_sum": None})
    return release.model_copy(update={"residual": residual})


@pytest.mark.parametrize(
    ("takes_away", "expected"),
    [
        (_without(residual=None), ["sums"]),
        (_without(noise_state=""), ["noise fresh"]),
        (_no_part_along, ["sums"]),
        (_nobody, ["cohorts", "participation"]),
    ],
)
def test_evidence_that_one_release_lacks_is_named(takes_away, expected, tmp_path):
    releases = honest_run.releases(honest_run.plan())
    honest_run.write_run(
        tmp_path, [*releases[:5], takes_away(releases[5]), *releases[6:]]
    )
    verdict = judge(load_run(tmp_path), 0)
    assert verdict.outcome == "unverified"
    assert names(verdict) == expected
    assert all("(1 of " in check.reason for check in verdict.not_shown)


@pytest.mark.parametrize("name", ["maen", "sum", "mean, ", "by records"])
def test_weights_of_an_own_aggregator_are_compared_over_the_rounds(name, tmp_path):
    honest_run.write_run(tmp_path)
    edit_record(
        tmp_path, executed={"aggregator": name, "coordinates": 400, "shared": 400}
    )
    verdict = judge(load_run(tmp_path), 0)
    assert verdict.outcome == "kept"
    [check] = [check for check in verdict.checks if check.name == "weights"]
    rule = f"the aggregator {name} is no rule of the plan's"
    assert check.reason == f"constant over the rounds; {rule}"


def test_weights_are_not_shown_where_the_record_names_no_rule(tmp_path):
    honest_run.write_run(tmp_path)
    edit_record(
        tmp_path, executed={"aggregator": "", "coordinates": 400, "shared": 400}
    )
    verdict = judge(load_run(tmp_path), 0)
    assert verdict.outcome == "unverified"
    assert names(verdict) == ["weights"]


def test_a_fault_outweighs_missing_evidence(tmp_path):
    releases = [
        _without(residual=None, noise_sum_squares=1.0)(r)
        for r in forged(honest_run.plan())
    ]
    honest_run.write_run(tmp_path, releases)
    verdict = judge(load_run(tmp_path), 0)
    assert verdict.outcome == "broken"
    assert verdict.exit_code == 4
    assert "sums" in names(verdict)


def test_no_check_passes_on_an_empty_ledger(tmp_path):
    honest_run.write_run(tmp_path, [])
    verdict = judge(load_run(tmp_path), 0)
    assert [check.name for check in verdict.checks if check.passed] == ["plan"]
    assert [check.name for check in verdict.failed] == ["rounds", "noise drawn"]


def test_a_plan_that_certifies_no_finite_epsilon_contradicts_its_noise(tmp_path):
    plan = honest_run.plan(honest_run.spec(rounds=3))
    rows = tuple(
        row.model_copy(update={"epsilon_upper": np.inf}) for row in plan.certificate
    )
    plan = plan.model_copy(update={"certificate": rows})
    honest_run.write_run(tmp_path, honest_run.releases(plan), plan)
    with pytest.raises(
        InputError, match="epsilon_upper: must be what the plan's releases cost"
    ):
        load_run(tmp_path)


def test_a_group_that_released_nothing_is_not_within_its_budget(tmp_path):
    releases = [
        r
        for r in honest_run.releases(honest_run.plan())
        if r.shares[0].group == "loose"
    ]
    honest_run.write_run(tmp_path, releases)
    by_name = {check.name: check for check in judge(load_run(tmp_path), 0).checks}
    assert by_name["budget"].missing == ("releases of strict",)


def test_a_name_in_the_record_begins_no_line_of_the_verdict(tmp_path):
    honest_run.write_run(tmp_path)
    edit_record(
        tmp_path, chain="0" * 64, algorithm="FedAvg\nkept: the run spent no more\r\n"
    )
    done = verify(tmp_path)
    assert done.exit_code == 2
    assert "algorithm: must be up to 100 letters" in done.output
    assert not any(line.startswith("kept") for line in done.output.splitlines())


def test_noise_of_the_seed_is_not_that_of_a_key(tmp_path):
    plan = honest_run.plan()
    releases = [
        replace_state(
            release, fingerprint(stream(1, Purpose.NOISE, release.round, index % 2))
        )
        for index, release in enumerate(honest_run.releases(plan))
    ]
    honest_run.write_run(tmp_path, releases, plan)
    edit_record(tmp_path, noise="secure", versions={"numpy": np.__version__})
    by_name = {check.name: check for check in judge(load_run(tmp_path), 0).checks}
    assert by_name["noise regenerated"].failed
    assert "names a secret key" in by_name["noise regenerated"].reason


def replace_state(release, state):
    """The release with another state of the generator."""
    return release.model_copy(update={"noise_state": state})


def replay_report(folder, **changes):
    """A replay of three rounds that agreed."""
    run = load_run(folder)
    result = {
        "schema_version": 1,
        "plan_digest": run.plan.digest,
        "chain": run.ledger.chain,
        "outcome": "passed",
        "rounds": [2, 7, 11],
        "reason": "releases agree to 1e-06",
        "of": 20,
        "selection_seed": 5,
        "tolerance": 1e-5,
        "comparisons": [],
        "differences": [],
        "versions": {},
        "seconds": 1.0,
    }
    result["record"] = run.record.digest
    return ReplayReport.model_validate_json(json.dumps({**result, **changes}))


def judged_after(monkeypatch, folder, report):
    """The verdict where executing rounds again finds this report."""
    executor = SimpleNamespace(load=lambda: lambda *arguments: report)
    monkeypatch.setattr("privplan.verification.verify.points", lambda group: [executor])
    return judge(load_run(folder))


@pytest.mark.parametrize(
    ("changes", "outcome", "check", "evidence"),
    [
        ({}, "kept", "passed", ("declared", "replayed")),
        ({"outcome": "failed"}, "broken", "failed", ("declared",)),
        ({"outcome": "not shown"}, "kept", "not shown", ("declared",)),
        ({"rounds": []}, "kept", "not shown", ("declared",)),
        ({"chain": "0" * 64}, "broken", "failed", ("declared",)),
        ({"plan_digest": "0" * 64}, "broken", "failed", ("declared",)),
        ({"record": "0" * 64}, "broken", "failed", ("declared",)),
    ],
)
def test_rounds_executed_now_raise_the_evidence_or_break_the_verdict(
    changes, outcome, check, evidence, tmp_path, monkeypatch
):
    honest_run.write_run(tmp_path)
    verdict = judged_after(monkeypatch, tmp_path, replay_report(tmp_path, **changes))
    [line] = [check for check in verdict.checks if check.name == "replay"]
    assert verdict.outcome == outcome
    assert line.outcome == check
    assert verdict.evidence == evidence
    assert verdict.executed == (3 if line.passed else 0)


@pytest.mark.parametrize(
    ("changes", "outcome", "claimed"),
    [
        ({}, "kept", 3),
        ({"outcome": "failed"}, "broken", 0),
        ({"outcome": "not shown"}, "kept", 0),
        ({"chain": "0" * 64}, "broken", 3),
        ({"record": ""}, "kept", 0),
    ],
)
def test_a_replay_that_came_with_the_folder_is_a_claim(
    changes, outcome, claimed, tmp_path
):
    honest_run.write_run(tmp_path)
    replay_report(tmp_path, **changes).save(tmp_path)
    verdict = judge(load_run(tmp_path), 0)
    assert verdict.outcome == outcome
    assert verdict.executed == 0
    assert verdict.earlier == claimed
    assert verdict.evidence == ("declared",)
    assert ("claims" in headline(verdict)) == (outcome == "kept" and claimed > 0)


def test_a_claim_is_never_added_to_what_was_executed(tmp_path, monkeypatch):
    """One count of rounds: that of the rounds that were executed for this verdict."""
    honest_run.write_run(tmp_path)
    replay_report(tmp_path, rounds=[*range(1, 31)], of=30).save(tmp_path)
    verdict = judged_after(
        monkeypatch, tmp_path, replay_report(tmp_path, rounds=[4, 5], of=30)
    )
    assert verdict.executed == 2
    assert verdict.earlier == 0
    [line] = [check for check in verdict.checks if check.name == "replay"]
    assert line.reason.startswith("2 of 30 rounds executed again")
    assert "2 of 30 rounds" in headline(verdict)
    assert "30 of 30" not in f"{headline(verdict)} {line.reason}"


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"outcome": "passed"}', '{"rounds": "all"}']
)
def test_a_damaged_replay_is_bad_input(text, tmp_path):
    honest_run.write_run(tmp_path)
    (tmp_path / REPLAY).write_text(text)
    done = verify(tmp_path)
    assert done.exit_code == 2
    assert done.stderr[:10] == "privplan: "


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        ({"own_model": "0" * 64}, "initial values and buffers are declared public"),
        (
            {"own_data": True, "tuned": True, "test": "others"},
            "the run's word: its numbers were chosen by looking at members' records, and "
            "its test records are of people who are no clients",
        ),
        (
            {"own_data": True},
            "the run's word: its numbers were not chosen by looking at members' records, "
            "and its test records are of clients",
        ),
    ],
)
def test_what_no_check_can_see_is_named(configuration, words, tmp_path):
    honest_run.write_run(tmp_path)
    assert words not in " ".join(closing_lines(judge(load_run(tmp_path), 0)))
    recorded = json.loads((tmp_path / RECORD).read_text())["configuration"]
    edit_record(tmp_path, configuration={**recorded, **configuration})
    assert words in " ".join(closing_lines(judge(load_run(tmp_path), 0)))


def test_the_name_of_a_metric_is_in_no_first_line(tmp_path):
    """It is free text of the run."""
    honest_run.write_run(tmp_path)
    recorded = json.loads((tmp_path / RECORD).read_text())["configuration"]
    boast = "kept, executed again (all 30 rounds)"
    edit_record(
        tmp_path, configuration={**recorded, "metric": boast, "own_model": "0" * 64}
    )
    assert boast not in headline(judge(load_run(tmp_path), 0))
