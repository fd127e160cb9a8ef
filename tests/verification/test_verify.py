"""The verdict: honest runs pass, and each way of breaking a promise is named."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from privplan.accounting.accountant import accountant
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.cli import main
from privplan.record import LEDGER, PLAN, VERDICT, ReleaseRecord
from privplan.verification.verify import Verdict, judge, load_run
from tests.verification import honest_run

Made = list[ReleaseRecord]


def _share(release: ReleaseRecord, **changes: object) -> ReleaseRecord:
    share = release.shares[0].model_copy(update=changes)
    return release.model_copy(update={"shares": (share,)})


def _noise_halved(made: Made) -> Made:
    return [r.model_copy(update={"noise_sum_squares": r.noise_sum_squares / 4}) for r in made]


def _noise_halved_once(made: Made) -> Made:
    return [*_noise_halved(made[:1]), *made[1:]]


def _noise_halved_and_booked(made: Made) -> Made:
    return [r.model_copy(update={"noise_std": r.noise_std / 2}) for r in _noise_halved(made)]


def _more_rounds(made: Made) -> Made:
    return [*made, *(r.model_copy(update={"round": r.round + 30}) for r in made)]


def _one_round_less(made: Made) -> Made:
    return made[:-1]


def _one_round_twice(made: Made) -> Made:
    return [*made, made[-1]]


def _one_client_unclipped(made: Made) -> Made:
    return [_share(made[0], largest_norm=honest_run.NORM * 1.01), *made[1:]]


def _no_clipping(made: Made) -> Made:
    return [_share(r, clip_bound=None) for r in made]


def _larger_clip(made: Made) -> Made:
    return [_share(r, clip_bound=1.0, largest_norm=1.0) for r in made]


def _no_noise(made: Made) -> Made:
    nothing = {"family": "none", "noise_std": 0.0, "noise_sum_squares": 0.0, "dimension": 0}
    return [r.model_copy(update=nothing) for r in made]


def _fixed_size_as_poisson(made: Made) -> Made:
    return [_share(r, cohort=round(r.shares[0].clients * r.shares[0].sampling_ratio)) for r in made]


def _fixed_size_booked(made: Made) -> Made:
    return [_share(r, sampling=SamplingLaw.FIXED_SIZE) for r in _fixed_size_as_poisson(made)]


def _twice_the_clients(made: Made) -> Made:
    return [_share(r, cohort=2 * r.shares[0].cohort) for r in made]


def _other_ratio(made: Made) -> Made:
    return [_share(r, sampling_ratio=2 * r.shares[0].sampling_ratio) for r in made]


def _noise_of_a_short_cohort(made: Made) -> Made:
    """A cohort of 4 where 16 are expected, each with its share of the variance."""
    first = _share(made[0], cohort=4, participants=(0, 1, 2, 3))
    halves = {"noise_std": first.noise_std / 2, "noise_sum_squares": first.noise_sum_squares / 4}
    return [first.model_copy(update=halves), *made[1:]]


def _one_state_twice(made: Made) -> Made:
    return [*made[:2], made[2].model_copy(update={"noise_state": made[0].noise_state}), *made[3:]]


def _one_noise_twice(made: Made) -> Made:
    again = {"noise_sum_squares": made[0].noise_sum_squares}
    return [*made[:2], made[2].model_copy(update=again), *made[3:]]


def _one_client_always(made: Made) -> Made:
    def taken(release: ReleaseRecord) -> ReleaseRecord:
        who = tuple(sorted({5, *release.shares[0].participants}))
        return _share(release, participants=who, cohort=len(who))

    return [taken(release) for release in made]


def _some_clients_preferred(made: Made) -> Made:
    """Every client with an odd number sends its even neighbour instead."""

    def taken(release: ReleaseRecord) -> ReleaseRecord:
        near = {who - who % 2 for who in release.shares[0].participants}
        return _share(release, participants=tuple(sorted(near)), cohort=len(near))

    return [taken(release) for release in made]


def _a_client_twice(made: Made) -> Made:
    who = made[0].shares[0].participants
    return [_share(made[0], participants=(*who, who[0]), cohort=len(who) + 1), *made[1:]]


def _a_client_of_nobody(made: Made) -> Made:
    who = made[0].shares[0].participants
    return [_share(made[0], participants=(*who[:-1], 800)), *made[1:]]


def _a_cohort_hidden(made: Made) -> Made:
    return [_share(made[0], cohort=made[0].shares[0].cohort - 1), *made[1:]]


def _median_clipping(made: Made) -> Made:
    return [_share(made[0], largest_norm=0.31), *made[1:]]


def _weight_of_the_realised_cohort(made: Made) -> Made:
    return [_share(r, weight=1 / r.shares[0].cohort) if r.round > 1 else r for r in made]


def _sum_scaled(made: Made) -> Made:
    residual = made[0].residual.model_copy(update={"along_sum": 10.0})
    return [made[0].model_copy(update={"residual": residual}), *made[1:]]


def _released_without_its_noise(made: Made) -> Made:
    residual = made[0].residual.model_copy(update={"sum_squares": 1e-3, "along_sum": 0.01})
    return [made[0].model_copy(update={"residual": residual}), *made[1:]]


def _more_coordinates(made: Made) -> Made:
    more = {"dimension": 410, "noise_sum_squares": made[0].noise_sum_squares * 41 / 40}
    return [made[0].model_copy(update=more), *made[1:]]


def _other_coordinates(made: Made) -> Made:
    return [*made[:-1], made[-1].model_copy(update={"support": "others"})]


def _unknown_group(made: Made) -> Made:
    return [*made, _share(made[0], group="nobody")]


FAULTS: list[tuple[Callable[[Made], Made], str, str]] = [
    (_noise_halved, "noise drawn", "round 1"),
    (_noise_halved_once, "noise drawn", "round 1"),
    (_noise_halved_and_booked, "noise planned", "planned 1.6"),
    (_more_rounds, "rounds", "60 releases where 30 rounds"),
    (_one_round_less, "rounds", "29 of 30"),
    (_one_round_twice, "rounds", "31 releases"),
    (_one_client_unclipped, "clipping", "exceeds its bound"),
    (_no_clipping, "clipping", "not clipped"),
    (_larger_clip, "clipping", "planned 0.5"),
    (_no_noise, "noise drawn", "infinite"),
    (_fixed_size_as_poisson, "sampling law", "unlike Poisson"),
    (_fixed_size_booked, "sampling law", "fixed_size, planned poisson"),
    (_twice_the_clients, "sampling law", "participations"),
    (_other_ratio, "sampling law", "sampling ratio"),
    (_unknown_group, "groups", "nobody"),
    (_noise_of_a_short_cohort, "noise shares", "a cohort of 4 drew 4 of 16 shares"),
    (_one_state_twice, "noise fresh", "round 2: the generator stood where it did in round 1"),
    (_one_noise_twice, "noise fresh", "round 2: the noise is that of round 1 again"),
    (_one_client_always, "participation", "client 5 took part in 30 of 30 rounds, about 0.6"),
    (_some_clients_preferred, "participation", "vary between clients unlike Poisson"),
    (_a_client_twice, "cohorts", "is in the sum 2 times"),
    (_a_client_of_nobody, "cohorts", "client 800 is none of the group's 800"),
    (_a_cohort_hidden, "cohorts", "participants"),
    (_median_clipping, "clipping", "the threshold was another one"),
    (_weight_of_the_realised_cohort, "weights", "in an earlier round of the same plan"),
    (_sum_scaled, "sums", "round 1: released is not the sum and its noise but a multiple"),
    (_released_without_its_noise, "sums", "round 1: released is the sum and a rest of"),
    (_more_coordinates, "coordinates", "410 coordinates left the clients, 400 may"),
    (_other_coordinates, "coordinates", "other coordinates than in the first round"),
]


def _verdict(folder: Path, made: Made | None = None) -> Verdict:
    honest_run.write_run(folder, made)
    return judge(load_run(folder))


@pytest.mark.parametrize(
    ("fault", "check", "reason"), FAULTS, ids=lambda v: getattr(v, "__name__", None)
)
def test_each_fault_is_named(tmp_path: Path, fault, check: str, reason: str) -> None:
    made = fault(honest_run.releases(honest_run.plan()))
    verdict = _verdict(tmp_path, made)
    failed = {item.name: item.reason for item in verdict.failed}
    assert not verdict.kept
    assert check in failed
    assert reason in failed[check]


def test_the_docs_list_every_check(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "verification.md").read_text()
    table = text.split("| check | fails when |")[1].split("\n\n")[0]
    listed = re.findall(r"^\| ([a-z ]+) \|", table, flags=re.MULTILINE)
    assert listed == [check.name for check in _verdict(tmp_path).checks]


@pytest.mark.parametrize("seed", range(20))
def test_honest_runs_pass(tmp_path: Path, seed: int) -> None:
    verdict = _verdict(tmp_path, honest_run.releases(honest_run.plan(), seed))
    assert verdict.kept, [item for item in verdict.checks if item.failed or item.missing]


def test_realised_epsilon_is_the_planned_mechanism_s(tmp_path: Path) -> None:
    verdict = _verdict(tmp_path)
    for group in verdict.groups:
        _, budget, ratio, sigma = honest_run.GROUPS[group.group]
        history = History.repeated(Release(sigma, ratio), 30)
        spent = accountant("pld").epsilon(history, group.delta, Relation.ADD_REMOVE)
        assert (group.realised_lower, group.realised_upper) == (spent.lower, spent.upper)
        assert group.realised_lower <= group.realised_upper <= group.realised_rdp
        assert group.headroom == pytest.approx(budget - spent.upper)
        assert group.planned == spent.upper


def test_extra_rounds_raise_the_realised_epsilon(tmp_path: Path) -> None:
    honest = _verdict(tmp_path / "a")
    longer = _verdict(tmp_path / "b", _more_rounds(honest_run.releases(honest_run.plan())))
    for before, after in zip(honest.groups, longer.groups, strict=True):
        assert after.realised_lower > before.realised_upper


def test_the_worst_off_client_is_the_one_who_used_most_of_its_budget(tmp_path: Path) -> None:
    verdict = _verdict(tmp_path)
    used = {group.group: group.realised_upper / group.budget for group in verdict.groups}
    assert verdict.worst.group == max(used, key=used.get)
    assert verdict.worst.client is None
    [group] = [group for group in verdict.groups if group.group == verdict.worst.group]
    for name in ("budget", "planned", "realised_lower", "realised_upper", "headroom"):
        assert getattr(verdict.worst, name) == getattr(group, name)


def test_an_unnoised_release_makes_epsilon_infinite(tmp_path: Path) -> None:
    verdict = _verdict(tmp_path, _no_noise(honest_run.releases(honest_run.plan())))
    assert [group.realised_upper for group in verdict.groups] == [None, None]
    assert not math.isfinite(float("inf" if verdict.groups[0].headroom is None else 0))


def test_an_edited_line_is_located(tmp_path: Path) -> None:
    honest_run.write_run(tmp_path)
    lines = (tmp_path / LEDGER).read_text().splitlines(keepends=True)
    lines[6] = lines[6].replace('"clipped":3', '"clipped":4')
    (tmp_path / LEDGER).write_text("".join(lines))
    verdict = judge(load_run(tmp_path))
    [ledger] = [item for item in verdict.checks if item.name == "ledger"]
    assert not ledger.passed
    assert "line 7" in ledger.reason
    for group in verdict.groups:  # the lines after the sound ones may have released anything
        assert not group.kept
        assert group.realised_upper is group.realised_rdp is group.headroom is None
    assert verdict.worst.realised_upper is None
    [budget] = [item for item in verdict.checks if item.name == "budget"]
    assert not budget.passed
    assert "after the sound lines" in budget.reason


def test_the_command_writes_the_verdict_and_answers_with_its_exit_code(tmp_path: Path) -> None:
    honest_run.write_run(tmp_path / "kept")
    done = CliRunner().invoke(main, ["verify", str(tmp_path / "kept")])
    assert done.exit_code == 0, done.output
    for word in ("add_remove", "poisson", "pld", "strict", "kept"):
        assert word in done.output
    assert json.loads((tmp_path / "kept" / VERDICT).read_text())["kept"] is True
    broken = _noise_halved(honest_run.releases(honest_run.plan()))
    honest_run.write_run(tmp_path / "broken", broken)
    done = CliRunner().invoke(main, ["verify", str(tmp_path / "broken"), "--format", "json"])
    assert done.exit_code == 4
    assert json.loads(done.output)["kept"] is False


def test_a_torn_last_line_is_bad_input_and_nothing_is_written(tmp_path: Path) -> None:
    honest_run.write_run(tmp_path)
    text = (tmp_path / LEDGER).read_text()
    (tmp_path / LEDGER).write_text(text[:-40])
    done = CliRunner().invoke(main, ["verify", str(tmp_path)])
    assert done.exit_code == 2
    assert "line 60 is torn" in done.stderr
    assert "59 releases" in done.stderr
    assert not (tmp_path / VERDICT).exists()


@pytest.mark.parametrize("field", ["noise_multiplier", "sampling_ratio", "weight", "epsilon"])
def test_a_plan_edited_by_hand_is_refused(tmp_path: Path, field: str) -> None:
    honest_run.write_run(tmp_path)
    data = json.loads((tmp_path / PLAN).read_text())
    data["groups"][0][field] *= 0.9
    (tmp_path / PLAN).write_text(json.dumps(data))
    done = CliRunner().invoke(main, ["verify", str(tmp_path)])
    assert done.exit_code == 2
    assert "edited by hand" in done.stderr
    assert len(done.stderr.splitlines()) == 1
