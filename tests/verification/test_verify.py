"""The verdict: honest runs pass, and each way of breaking a promise is named."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from privplan.accounting.accountant import accountant
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.record import LEDGER, PLAN, VERDICT, ReleaseRecord
from privplan.verification.verify import judge, load_run
from tests.command import refused, verify
from tests.verification import honest_run

Releases = list[ReleaseRecord]


def _share(release, **changes):
    return release.model_copy(
        update={"shares": (release.shares[0].model_copy(update=changes),)}
    )


Change = Callable[[ReleaseRecord], ReleaseRecord]
NOTHING = {"family": "none", "noise_std": 0.0, "noise_sum_squares": 0.0, "dimension": 0}


def _set(**changes):
    return lambda release: release.model_copy(update=changes)


def _shares(**changes):
    return lambda release: _share(release, **changes)


def _residual(**changes):
    return lambda release: release.model_copy(
        update={"residual": release.residual.model_copy(update=changes)}
    )


def _always(change):
    return lambda releases: [change(release) for release in releases]


def _once(change, index=0):
    return lambda releases: [change(r) if r is releases[index] else r for r in releases]


def _halved(release):
    return _set(noise_sum_squares=release.noise_sum_squares / 4)(release)


def _halved_and_booked(release):
    return _set(noise_std=release.noise_std / 2)(_halved(release))


def _with_client_5(release):
    who = tuple(sorted({5, *release.shares[0].participants}))
    return _share(release, participants=who, cohort=len(who))


def _even_neighbours(release):
    """Every client with an odd number sends its even neighbour instead."""
    neighbours = {who - who % 2 for who in release.shares[0].participants}
    return _share(
        release, participants=tuple(sorted(neighbours)), cohort=len(neighbours)
    )


def _rounded_cohort(release):
    share = release.shares[0]
    return _share(release, cohort=round(share.clients * share.sampling_ratio))


def _sends(change, extra_cohort=0):
    """Other participants, and a cohort of so many more."""
    return lambda release: _share(
        release,
        participants=change(release.shares[0].participants),
        cohort=release.shares[0].cohort + extra_cohort,
    )


def _more_rounds(releases):
    later = [
        release.model_copy(update={"round": release.round + 30}) for release in releases
    ]
    return [*releases, *later]


FAULTS: dict[str, tuple[Callable[[Releases], Releases], str, str]] = {
    "noise halved": (_always(_halved), "noise drawn", "round 1"),
    "noise halved once": (_once(_halved), "noise drawn", "round 1"),
    "noise halved and booked": (_always(_halved_and_booked), "noise planned", "planned 1.6"),
    "more rounds": (_more_rounds, "rounds", "60 releases where 30 rounds"),
    "another order": (lambda releases: releases[::-1], "rounds", "round 29 stands after round 30"),
    "one round less": (lambda releases: releases[:-1], "rounds", "29 of 30"),
    "one round twice": (lambda releases: [*releases, releases[-1]], "rounds", "31 releases"),
    "one client unclipped": (
        _once(_shares(largest_norm=honest_run.NORM * 1.01)), "clipping", "exceeds its bound",
    ),
    "no clipping": (_always(_shares(clip_bound=None)), "clipping", "not clipped"),
    "larger clip": (
        _always(_shares(clip_bound=1.0, largest_norm=1.0)), "clipping", "planned 0.5",
    ),
    "no noise": (_always(_set(**NOTHING)), "noise drawn", "infinite"),
    "fixed size as Poisson": (_always(_rounded_cohort), "sampling law", "unlike Poisson"),
    "fixed size": (
        _always(lambda r: _share(_rounded_cohort(r), sampling=SamplingLaw.FIXED_SIZE)),
        "sampling law", "fixed_size, planned poisson",
    ),
    "twice the clients": (
        _always(lambda r: _share(r, cohort=2 * r.shares[0].cohort)),
        "sampling law", "participations",
    ),
    "other ratio": (
        _always(lambda r: _share(r, sampling_ratio=2 * r.shares[0].sampling_ratio)),
        "sampling law", "sampling ratio",
    ),
    "ratio of other last digits": (
        _once(lambda r: _share(r, sampling_ratio=r.shares[0].sampling_ratio * (1 + 1e-13))),
        "sampling law", "sampling ratio 0.02000000000000",
    ),
    "a grid of normal noise": (
        _once(_set(grid=1e-9)), "ledger",
        "line 1: grid: must be absent for family gaussian, found 1e-09",
    ),
    "no grid of discrete noise": (
        _once(_set(family="discrete_gaussian")), "ledger",
        "line 1: grid: must be a step for family discrete_gaussian, found None",
    ),
    "unknown group": (
        lambda releases: [*releases, _share(releases[0], group="nobody")], "groups", "nobody",
    ),
    "one state twice": (
        lambda releases: _once(_set(noise_state=releases[0].noise_state), 2)(releases),
        "noise fresh", "round 2: the generator stood where it did in round 1",
    ),
    "one noise twice": (
        lambda releases: _once(_set(noise_sum_squares=releases[0].noise_sum_squares), 2)(releases),
        "noise fresh", "round 2: the noise is that of round 1 again",
    ),
    "one client always": (
        _always(_with_client_5), "participation",
        "client 5 took part in 30 of 30 rounds, about 0.6",
    ),
    "some clients preferred": (
        _always(_even_neighbours), "participation", "vary between clients unlike Poisson",
    ),
    "a client twice": (
        _once(_sends(lambda who: (*who, who[0]), 1)), "cohorts", "in the sum 2 times",
    ),
    "a client of nobody": (
        _once(_sends(lambda who: (*who[:-1], 800))), "cohorts",
        "client 800 is none of the group's 800",
    ),
    "a cohort hidden": (_once(_sends(lambda who: who, -1)), "cohorts", "participants"),
    "median clipping": (_once(_shares(largest_norm=0.31)), "clipping", "threshold was another one"),
    "weight of the realised cohort": (
        _always(lambda r: _share(r, factor=1 / r.shares[0].cohort) if r.round > 1 else r),
        "weights", "in an earlier round of the same plan",
    ),
    "sum scaled": (
        _once(_residual(along_sum=10.0)), "sums",
        "round 1: released is not the sum and its noise but a multiple",
    ),
    "released without its noise": (
        _once(_residual(sum_squares=1e-3, along_sum=0.01)), "sums",
        "round 1: released is the sum and a rest of",
    ),
    "more coordinates": (
        lambda releases: [
            _set(dimension=410, noise_sum_squares=r.noise_sum_squares * 41 / 40)(r)
            for r in releases
        ],
        "coordinates", "410 coordinates left the clients, 400 may",
    ),
    "other coordinates": (
        _once(_set(support="0" * 24), -1), "coordinates",
        "other coordinates than in the first round",
    ),
}  # fmt: skip


def _verdict(folder, releases=None):
    honest_run.write_run(folder, releases)
    return judge(load_run(folder), 0)


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_named(tmp_path, name):
    fault, check, reason = FAULTS[name]
    verdict = _verdict(tmp_path, fault(honest_run.releases(honest_run.plan())))
    failed = {item.name: item.reason for item in verdict.failed}
    assert not verdict.kept
    assert check in failed
    assert reason in failed[check]


def test_the_docs_list_every_check(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "reference" / "checks.md").read_text()
    table = text.split("| check | fails when |")[1].split("\n\n")[0]
    listed = re.findall(r"^\| ([a-z ]+) \|", table, flags=re.MULTILINE)
    assert listed == [check.name for check in _verdict(tmp_path).checks]


@pytest.mark.parametrize("seed", range(10))
def test_honest_runs_pass(tmp_path, seed):
    verdict = _verdict(tmp_path, honest_run.releases(honest_run.plan(), seed))
    assert verdict.kept, [
        item for item in verdict.checks if item.failed or item.missing
    ]


def test_realised_epsilon_is_the_planned_mechanism_s(tmp_path):
    for group in _verdict(tmp_path).groups:
        _, budget, ratio, sigma = honest_run.GROUPS[group.group]
        history = History.repeated(Release(sigma, ratio), 30)
        spent = accountant("pld").epsilon(history, group.delta, Relation.ADD_REMOVE)
        assert group.realised_lower == spent.lower
        assert group.realised_upper == spent.upper
        assert group.realised_lower <= group.realised_upper <= group.realised_rdp
        assert group.headroom == pytest.approx(budget - spent.upper)
        assert group.planned == spent.upper


def test_extra_rounds_raise_the_realised_epsilon(tmp_path):
    honest = _verdict(tmp_path / "a")
    longer = _verdict(
        tmp_path / "b", _more_rounds(honest_run.releases(honest_run.plan()))
    )
    for before, after in zip(honest.groups, longer.groups, strict=True):
        assert after.realised_lower > before.realised_upper


def test_the_worst_off_client_is_the_one_who_used_most_of_its_budget(tmp_path):
    verdict = _verdict(tmp_path)
    used = {
        group.group: group.realised_upper / group.budget for group in verdict.groups
    }
    assert verdict.worst.group == max(used, key=used.get)
    assert verdict.worst.client is None
    [group] = [group for group in verdict.groups if group.group == verdict.worst.group]
    for name in ("budget", "planned", "realised_lower", "realised_upper", "headroom"):
        assert getattr(verdict.worst, name) == getattr(group, name)


def test_an_unnoised_release_makes_epsilon_infinite(tmp_path):
    verdict = _verdict(
        tmp_path,
        _always(_set(**NOTHING))(honest_run.releases(honest_run.plan())),
    )
    assert [group.realised_upper for group in verdict.groups] == [None, None]
    assert verdict.groups[0].headroom is None


def test_an_edited_line_is_located(tmp_path):
    honest_run.write_run(tmp_path)
    lines = (tmp_path / LEDGER).read_text().splitlines(keepends=True)
    lines[6] = lines[6].replace('"clipped":3', '"clipped":4')
    (tmp_path / LEDGER).write_text("".join(lines))
    verdict = judge(load_run(tmp_path), 0)
    [ledger] = [item for item in verdict.checks if item.name == "ledger"]
    assert not ledger.passed
    assert "line 7" in ledger.reason
    # The lines after the sound ones may have released anything.
    for group in verdict.groups:
        assert not group.kept
        assert group.realised_upper is group.realised_rdp is group.headroom is None
    assert verdict.worst.realised_upper is None
    [budget] = [item for item in verdict.checks if item.name == "budget"]
    assert not budget.passed
    assert "after the sound lines" in budget.reason


def test_the_command_writes_the_verdict_and_answers_with_its_exit_code(tmp_path):
    honest_run.write_run(tmp_path / "kept")
    done = verify(tmp_path / "kept")
    assert done.exit_code == 0, done.output
    for word in ("add_remove", "poisson", "pld", "strict", "kept"):
        assert word in done.output
    assert json.loads((tmp_path / "kept" / VERDICT).read_text())["kept"] is True
    broken = _always(_halved)(honest_run.releases(honest_run.plan()))
    honest_run.write_run(tmp_path / "broken", broken)
    done = verify(tmp_path / "broken", "--format=json")
    assert done.exit_code == 4
    assert json.loads(done.output)["kept"] is False


def test_a_torn_last_line_is_bad_input_and_nothing_is_written(tmp_path):
    honest_run.write_run(tmp_path)
    (tmp_path / LEDGER).write_text((tmp_path / LEDGER).read_text()[:-40])
    line = refused("verify", tmp_path)
    assert "line 60 is torn" in line
    assert "59 releases" in line
    assert not (tmp_path / VERDICT).exists()


@pytest.mark.parametrize(
    "field", ["noise_multiplier", "sampling_ratio", "weight", "epsilon"]
)
def test_a_plan_edited_by_hand_is_refused(tmp_path, field):
    honest_run.write_run(tmp_path)
    data = json.loads((tmp_path / PLAN).read_text())
    data["groups"][0][field] *= 0.9
    (tmp_path / PLAN).write_text(json.dumps(data))
    answered = verify(tmp_path)
    assert answered.exit_code == 2
    follows = {"sampling_ratio": "expected_cohort", "epsilon": "epsilon"}
    if field in follows:  # it contradicts the spec, whatever the digest
        assert f"plan.json: groups.strict.{follows[field]}: must be" in answered.stderr
        return
    edited = "plan.json: plan.digest: must be the hash of the plan, which was edited"
    assert edited in answered.stderr
