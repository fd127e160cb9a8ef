"""The guard's draws, noise, bookings and resumption, and what it refuses."""

import json
import stat
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binomtest, kstest

from privplan.accounting.accountant import accountant
from privplan.accounting.release import Relation
from privplan.book.entry import booking_of
from privplan.errors import InputError
from privplan.evidence.noise import NOISE_EVIDENCE
from privplan.guard import BudgetExceededError, Guard, Layout, clip
from privplan.guard import rounds as guard_rounds
from privplan.guard.opening import check_settings
from privplan.guard.rounds import noised_line, planned_noise_std
from privplan.ledger import history_of
from privplan.record import LEDGER, PLAN, RECORD, RunRecord
from privplan.report.verdicts import group_table, headline
from privplan.verification.checks.check import Check
from privplan.verification.verify import judge, load_run
from tests.guard.plans import SIZE, files, ledger_of, plan_of, train, two_groups


@pytest.mark.parametrize(
    ("sampling", "release"),
    [("poisson", "joint"), ("poisson", "per_group"), ("full", "joint")],
)
def test_a_finished_run_keeps_its_plan(tmp_path, sampling, release):
    everyone = {"strict": (60, 20.0, 1.0, 8.0), "loose": (40, 40.0, 1.0, 6.0)}
    if sampling == "full":
        plan = plan_of(everyone, 12, sampling="full", release=release)
    else:
        plan = two_groups(sampling=sampling, release=release)
    with Guard(plan, tmp_path / "run") as guard:
        train(guard)
        assert guard.finished
        spent = guard.epsilon("loose")
    verdict = Guard(plan, tmp_path / "run").verdict()
    assert verdict.outcome == "kept"
    assert verdict.noise == "secure"
    assert verdict.evidence == ("declared",)
    [loose] = [group for group in verdict.groups if group.group == "loose"]
    assert loose.realised_upper == loose.planned == spent.upper
    record = RunRecord.load(tmp_path / "run")
    assert record.seed is None
    assert record.dataset == ""
    assert record.status == "complete"
    assert "seed" not in json.loads((tmp_path / "run" / RECORD).read_text())


def test_public_evidence_has_nothing_that_no_noise_protects(tmp_path):
    plan = two_groups()
    with Guard(plan, tmp_path, evidence="public") as guard:
        train(guard)
    for record in ledger_of(tmp_path, plan):
        assert record.noise_sum_squares is None
        assert record.residual is None
        for share in record.shares:
            assert share.cohort is None
            assert share.participants is None
            assert share.drawn is None
            assert share.largest_norm is None
            assert share.clipped is None
    verdict = Guard(plan, tmp_path, evidence="public").verdict()
    assert verdict.outcome == "unverified"
    names = "noise coverage, noise distribution, noise independence, clipping, noise drawn, sums"
    names = f"{names}, sampling law, cohorts, participation".split(", ")
    assert {check.name for check in verdict.not_shown} == set(names)
    assert {row[-1] for row in group_table(verdict)[2]} == {"unverified"}


def test_a_row_never_contradicts_the_outcome(tmp_path):
    with Guard(two_groups(), tmp_path) as guard:
        train(guard)
        verdict = guard.verdict()
    assert {row[-1] for row in group_table(verdict)[2]} == {"kept"}
    check = Check(name="sums", outcome="failed", reason="another sum")
    broken = verdict.model_copy(update={"checks": (*verdict.checks, check)})
    assert broken.outcome == "broken"
    assert {row[-1] for row in group_table(broken)[2]} == {"not shown"}


def test_noise_and_weights_are_the_planned_ones(tmp_path):
    plan = two_groups(1, release="per_group")
    total = np.linspace(-1, 1, 20_000)
    with Guard(plan, tmp_path) as guard:
        guard.draw(1)
        released = guard.release(1, {"strict": total, "loose": -total})
        guard.record(1)
    strict, _ = plan.groups
    std = strict.noise_multiplier * 0.5
    assert kstest((released.sums[0] - total) / std, "norm").pvalue > 1e-4
    assert released.weights == (0.5 / 6.0, 0.5 / 8.0)  # w_m / r_m
    assert released.groups == (("strict",), ("loose",))
    assert released.kept_fractions == (1.0, 1.0)
    expected = (
        released.weights[0] * released.sums[0] + released.weights[1] * released.sums[1]
    )
    assert np.allclose(released.mean, expected, rtol=1e-12)
    joint = two_groups(1)
    with Guard(joint, tmp_path / "joint") as guard:
        stds = [group.noise_multiplier * group.scale * 0.5 for group in joint.groups]
        assert guard.noise_std(1) == pytest.approx(stds[0]) == pytest.approx(stds[1])
        with pytest.raises(InputError, match="must be left out"):
            guard.noise_std(1, "strict")


def test_the_mean_keeps_the_largest_coordinates_of_each_sum(tmp_path):
    plan = two_groups(1, release="per_group")
    groups = tuple(
        group.model_copy(update={"kept_fraction": fraction})
        for group, fraction in zip(plan.groups, (0.1, 1.0), strict=True)
    )
    plan = plan.model_copy(update={"groups": groups})
    with Guard(plan, tmp_path) as guard:
        guard.draw(1)
        released = guard.release(
            1, {"strict": np.arange(SIZE), "loose": np.zeros(SIZE)}
        )
        guard.record(1)
    strict = (
        released.mean / released.weights[0]
        - released.sums[1] * released.weights[1] / released.weights[0]
    )
    largest = np.argsort(np.abs(released.sums[0]))[-4:]
    assert np.allclose(strict[largest], released.sums[0][largest])
    assert np.allclose(np.delete(strict, largest), 0, atol=1e-9)


def test_cohorts_follow_the_law_over_registered_clients(tmp_path):
    groups = {"all": (200, 50.0, 0.1, 20.0)}
    plan = plan_of(groups, 60)
    counts = np.zeros(200, int)
    present = set(range(0, 200, 2))
    with Guard(plan, tmp_path) as guard:
        for round_ in guard.rounds():
            cohort = guard.draw(round_, {"all": present})
            assert set(cohort.clients["all"]) == set(cohort.drawn["all"]) & present
            counts[list(cohort.drawn["all"])] += 1
            guard.release(round_, {"all": np.zeros(SIZE)})
            guard.record(round_)
    assert binomtest(int(counts.sum()), 60 * 200, 0.1).pvalue > 1e-4
    assert cohort.missing == {"all": 100}
    [sentence] = cohort.guarantee
    assert "100 of 200 registered clients are missing" in sentence
    assert "the ratio stays 0.1" in sentence
    assert "cohort is 10 instead of 20" in sentence


def test_a_fixed_cohort_keeps_its_ratio_when_clients_are_missing(tmp_path):
    plan = plan_of({"all": (100, 50.0, 0.2, 20.0)}, 4, sampling="fixed_size")
    with Guard(plan, tmp_path) as guard:
        for round_ in guard.rounds():
            cohort = guard.draw(round_, {"all": range(50)})
            assert len(cohort.drawn["all"]) == 20 >= len(cohort)
            assert "the ratio stays 0.2" in cohort.guarantee[0]
            for group, client in cohort.members:
                guard.add(round_, group, client, np.full(SIZE, 0.01 * client))
            guard.release(round_)
            guard.record(round_)
    verdict = Guard(plan, tmp_path).verdict()
    assert verdict.outcome == "kept"
    release = ledger_of(tmp_path, plan)[0]
    assert release.shares[0].drawn == 20 > (release.shares[0].cohort or 0)


def test_an_update_is_clipped_whatever_the_client_did():
    update = np.full(100, 3.0)
    clipped = clip(update, 0.5)
    assert np.linalg.norm(clipped.astype(np.float32).astype(float)) <= 0.5
    assert np.linalg.norm(clipped) == pytest.approx(0.5, rel=1e-6)
    assert np.array_equal(clip(update, 40.0), update)
    assert not clip(np.array([1.0, np.nan]), 1.0).any()


def test_a_layout_keeps_what_is_not_of_floating_point():
    arrays = {
        "w": np.arange(6, dtype=np.float32).reshape(2, 3),
        "steps": np.array(7),
        "b": np.ones(2),
    }
    layout = Layout.of(arrays)
    assert layout.size == 8
    assert layout.other_names == ("steps",)
    back = layout.arrays(layout.vector(arrays) + 1, arrays)
    assert list(back) == list(arrays)
    assert back["w"].dtype == np.float32
    assert back["steps"] == 7
    assert np.array_equal(back["w"], arrays["w"] + 1)
    with pytest.raises(InputError, match=r"model\.b: must have the shape \(2,\)"):
        layout.vector({**arrays, "b": np.ones(3)})
    with pytest.raises(InputError, match="floating point"):
        Layout.of({"steps": np.array(7)})


def test_failed_rounds_and_an_early_stop_are_booked_as_what_they_were(tmp_path):
    plan = two_groups(12)
    with Guard(plan, tmp_path) as guard:
        train(guard, rounds=3)
        guard.draw(4)
        guard.fail(4, "2 of 14 clients reported")
        train(guard, rounds=2)
        with pytest.raises(
            InputError, match="must be 7, the first round that is not booked"
        ):
            guard.fail(4, "again")
        guard.finish()
        assert list(guard.rounds()) == []
        assert guard.refusal() == "run: must not be finished, found 'stopped'"
    records = ledger_of(tmp_path, plan)
    assert [record.family for record in records] == ["gaussian"] * 3 + ["silent"] + [
        "gaussian"
    ] * 2
    assert records[3].failure == "2 of 14 clients reported"
    assert history_of(records, "strict").rounds == 6
    verdict = Guard(plan, tmp_path).verdict()
    assert verdict.outcome == "kept"
    [rounds] = [check for check in verdict.checks if check.name == "rounds"]
    assert rounds.reason == "6 of 12 planned rounds, then the run was stopped"
    [strict] = [group for group in verdict.groups if group.group == "strict"]
    assert strict.realised_upper < (strict.planned or 0)
    with Guard(plan, tmp_path) as guard:
        assert guard.finished
        with pytest.raises(BudgetExceededError, match="must not be finished"):
            guard.draw(7)


def test_a_round_is_drawn_and_released_once(tmp_path):
    plan = two_groups(3)
    with Guard(plan, tmp_path) as guard:
        drawn = guard.draw(1).drawn
    with Guard(plan, tmp_path) as guard:
        assert guard.draw(1).drawn == drawn
        sums = {"strict": np.ones(SIZE)}
        first_release = guard.release(1, sums)
        again = guard.release(1, {"strict": np.zeros(SIZE)})
        assert np.array_equal(first_release.sums[0], again.sums[0])
    assert (
        len(ledger_of(tmp_path, plan)) == 1
    )  # booked when the guard closed without a model
    with Guard(plan, tmp_path) as guard:
        assert np.array_equal(guard.interrupted.mean, first_release.mean)
        assert guard.round == 2
        guard.record(1, np.full(SIZE, 5.0))
        assert guard.interrupted is None
        assert (guard.model["model"] == 5).all()
        with pytest.raises(InputError, match="booked and never released again"):
            guard.release(1, sums)
        with pytest.raises(InputError, match="must be drawn by the guard before"):
            guard.release(2, sums)
        for round_ in guard.rounds():
            guard.draw(round_)
            guard.release(round_, sums)
            guard.record(round_, np.full(SIZE, float(round_)))
    kept_files = ["model-2.bin", "model-3.bin", "release-2.bin", "release-3.bin"]
    assert files(tmp_path) == kept_files


def test_an_empty_first_cohort_is_released_at_the_planned_length(tmp_path):
    """No update yet: the plan knows the length, and the noise is released."""
    with Guard(two_groups(6), tmp_path / "run") as guard:
        guard.draw(1)
        released = guard.release(1)
        assert released.sums[0].shape == (SIZE,)
        assert released.sums[0].std() > 0
        guard.record(1, released.mean)
        train(guard)
        assert guard.finished


def test_a_sum_of_zeros_says_that_nobody_contributed(tmp_path):
    """Adapters give an empty cohort's sum as zeros, whose clipping is shown."""
    plan = two_groups()
    with Guard(plan, tmp_path / "run") as guard:
        for round_ in guard.rounds():
            members = guard.draw(round_).members
            if round_ > 3 and members:  # before, nobody reports
                for group, client in members:
                    guard.add(round_, group, client, np.full(SIZE, 0.05))
                released = guard.release(round_)
            else:
                released = guard.release(round_, {"strict": np.zeros(SIZE)})
            guard.record(round_, released.mean)
        verdict = guard.verdict()
    for record in ledger_of(tmp_path / "run", plan)[:3]:
        for share in record.shares:
            assert share.cohort == 0
            assert share.largest_norm == 0.0
            assert share.clipped == 0
    assert verdict.outcome == "kept"


def test_a_ledger_of_numbers_alone_shows_nothing_and_costs_infinite_epsilon(tmp_path):
    with Guard(two_groups(), tmp_path / "run") as guard:
        train(guard)
    assert booking_of(tmp_path / "run", "").run.cost == "recorded"
    # As of a deployment that was made up from its plan.
    (tmp_path / "run" / NOISE_EVIDENCE).unlink()
    verdict = judge(load_run(tmp_path / "run"), 0)
    assert verdict.level == "unverified"
    assert verdict.exit_code == 5
    not_shown = {check.name for check in verdict.not_shown}
    names = ("coverage", "distribution", "independence")
    assert not_shown == {f"noise {name}" for name in names}
    assert booking_of(tmp_path / "run", "").run.cost == "infinite"


def test_measurements_of_a_round_that_was_never_released_are_dropped(tmp_path):
    with Guard(two_groups(), tmp_path) as guard:
        train(guard, rounds=2)
    path = tmp_path / NOISE_EVIDENCE
    last_line = path.read_text().splitlines(keepends=True)[-1]
    path.write_text(
        path.read_text() + last_line.replace('"round":2', '"round":3') + last_line[:40]
    )
    with Guard(two_groups(), tmp_path) as guard:
        train(guard)
    assert judge(load_run(tmp_path), 0).outcome == "kept"


def test_the_round_that_would_overspend_is_refused(tmp_path):
    """The plan has 30 rounds; the budget of the loose group holds for fewer."""
    plan = plan_of({"strict": (60, 9.0, 0.1, 2.0), "loose": (40, 2.0, 0.2, 1.5)}, 30)
    loose = plan.group("loose")
    with Guard(plan, tmp_path) as guard:
        train(guard)
        done = guard.round - 1
        assert not guard.finished
        refusal = guard.refusal()
        assert refusal.startswith(
            "groups.loose.epsilon: must stay within the budget 2 at delta"
        )
        for call in (guard.draw, guard.release):
            with pytest.raises(
                BudgetExceededError, match=f"with the release of round {done + 1}"
            ):
                call(done + 1)
        guard.finish()
    records = ledger_of(tmp_path, plan)
    assert len(records) == done
    pld = accountant("pld")
    relation = Relation(plan.spec.relation)
    spent = history_of(records, "loose")
    next_round = history_of([*records, records[-1]], "loose")
    assert pld.epsilon(spent, loose.delta, relation).upper <= 2.0
    assert pld.epsilon(next_round, loose.delta, relation).upper > 2.0


def test_rounds_beyond_the_plan_are_refused(tmp_path):
    plan = two_groups(2)
    with Guard(plan, tmp_path) as guard:
        train(guard)
        with pytest.raises(
            BudgetExceededError, match="one of the 2 planned rounds, found 3"
        ):
            guard.draw(3)


def test_a_run_that_ended_too_early_says_after_how_many_rounds(tmp_path):
    with Guard(two_groups(12), tmp_path):
        pass
    with pytest.raises(
        InputError, match="must have a release; 0 of 12 rounds are booked"
    ):
        load_run(tmp_path)
    with Guard(two_groups(12), tmp_path) as guard:
        train(guard, 5)
        verdict = guard.verdict()
    missing = "rounds 6 to 12; 5 of 12 are booked, the run is not finished"
    assert headline(verdict) == f"unverified, not shown: rounds (missing: {missing})"
    assert verdict.exit_code == 5


def test_one_process_holds_a_run(tmp_path):
    plan = two_groups(2)
    with (
        Guard(plan, tmp_path),
        pytest.raises(InputError, match="in use by another run"),
    ):
        Guard(plan, tmp_path)


def test_wrong_input_is_refused_and_changes_nothing(tmp_path):
    plan = two_groups(2)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="must be the folder of a guarded run"):
        Guard(plan, tmp_path)
    with pytest.raises(InputError, match="ledger: must be the path of a run folder"):
        Guard(plan, 5)
    with pytest.raises(InputError, match="did you mean evidence"):
        Guard(plan, tmp_path / "run", evidense="public")
    with Guard(plan, tmp_path / "run") as guard:
        for round_ in (2, True):
            with pytest.raises(InputError, match="must be 1, the first round"):
                guard.draw(round_)
        with pytest.raises(
            InputError, match="must be one of strict, loose, found 'none'"
        ):
            guard.draw(1, {"none": [1]})
        with pytest.raises(
            InputError, match=r"positions of registered clients, 0 to 59, found 60"
        ):
            guard.draw(1, {"strict": [60]})
        for available in ([3], "strict", {"strict": ["ann"]}, {"strict": 3}):
            with pytest.raises(
                InputError, match=r"available.*: must be positions .* by group, such"
            ):
                guard.draw(1, available)
        guard.draw(1)
        with pytest.raises(InputError, match="sums: must"):
            guard.release(1, {"strict": np.zeros(3), "loose": np.zeros(4)})
        with pytest.raises(InputError, match="sums: must be arrays by group, such as"):
            guard.release(1, np.zeros(3))
        for method in (guard.draw, guard.release, guard.released, guard.record):
            with pytest.raises(
                InputError, match=r"round: must be the number .* next is 1, found 'nda"
            ):
                method(np.zeros((3, 4)))
        for round_ in (0, 1):
            with pytest.raises(InputError, match="must be released before"):
                guard.record(round_)
    with pytest.raises(InputError, match="must be the one of the run"):
        Guard(two_groups(3), tmp_path / "run")
    with pytest.raises(InputError, match="evidence: must be internal, as in"):
        Guard(plan, tmp_path / "run", evidence="public")
    assert not (tmp_path / "run" / LEDGER).exists()


@pytest.mark.parametrize(("old", "new"), [(b"noise_std", b"noise_stt"), (b"0.", b"1.")])
def test_a_damaged_release_is_refused_by_its_name(tmp_path, old, new):
    with Guard(two_groups(), tmp_path / "run") as guard:
        guard.draw(1)
        guard.release(1, {name: np.zeros(SIZE) for name in guard.draw(1).clients})
    booked = (tmp_path / "run" / LEDGER).read_bytes()
    path = tmp_path / "run" / "guard" / "release-1.bin"
    head, mark, content = path.read_bytes().partition(b"\n")
    path.write_bytes(head.replace(old, new, 1) + mark + content)
    with pytest.raises(
        InputError, match=r"guard.release: must be as it was written, .*release-1"
    ):
        Guard(two_groups(), tmp_path / "run")
    assert (tmp_path / "run" / LEDGER).read_bytes() == booked


def test_a_folder_may_hold_the_plan_of_its_run_only(tmp_path):
    plan = two_groups(2)
    plan.save(tmp_path / PLAN)
    with pytest.raises(InputError, match="must be the folder of a guarded run"):
        Guard(two_groups(3), tmp_path)
    with Guard(plan, tmp_path):
        pass
    # Who takes part is for nobody else.
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_a_run_that_was_closed_before_its_last_round_goes_on(tmp_path):
    plan = two_groups(3)
    with Guard(plan, tmp_path) as guard:
        train(guard, 2)
    with Guard(plan, tmp_path) as guard:
        assert guard.round == 3
        assert not guard.finished
        train(guard)
    assert RunRecord.load(tmp_path).status == "complete"


@pytest.mark.parametrize(
    ("unit", "keep", "field"),
    [("record", 2, "plan.spec.unit"), ("client", 0, "keep"), ("client", 1, "")],
)
def test_what_a_guard_cannot_execute_is_refused(unit, keep, field):
    spec = SimpleNamespace(require=lambda use, place: None)
    plan = SimpleNamespace(unit=unit, clipping=None, spec=spec)
    faults = []
    try:
        check_settings(plan, "internal", keep)
    except InputError as error:
        faults = [fault.field for fault in error.faults]
    assert faults == ([field] if field else [])


def test_noise_of_others_may_provide_for_dropouts(monkeypatch):
    """As many deviations more as the root of the provision for the variance."""
    plan = two_groups(1)
    planned = planned_noise_std(plan, 1, None)
    with pytest.raises(InputError, match=r"as planned, found"):
        noised_line(plan, 1, SIZE, 1.1 * planned, "")
    monkeypatch.setattr(guard_rounds, "noise_provision", lambda spec: 1.44)
    line = noised_line(plan, 1, SIZE, 1.19 * planned, "")
    assert line.noise_std == 1.19 * planned
    with pytest.raises(InputError, match="to provide for dropouts"):
        noised_line(plan, 1, SIZE, 1.21 * planned, "")
