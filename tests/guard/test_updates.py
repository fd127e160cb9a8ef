"""Updates come with their client: none of others, and of each client one."""

import numpy as np
import pytest

from privplan.errors import InputError
from privplan.guard import GroupTotal, Guard, guard
from privplan.record import LEDGER
from tests.guard.plans import SIZE, ledger_of, plan_of, train, two_groups

NORM = 0.5


def drawing(monkeypatch, clients, group="all", **groups):
    """A guard draws these clients of a group in every round."""
    drawn = {group: tuple(clients), **groups}
    monkeypatch.setattr(guard, "draw_registered", lambda *_: (drawn, {}))


def fixed(rounds=2):
    """A plan of 20 of 100 clients in each round."""
    return plan_of({"all": (100, 50.0, 0.2, 20.0)}, rounds, sampling="fixed_size")


@pytest.fixture
def running(tmp_path, monkeypatch):
    """A guard whose first round has drawn the clients 0 to 19 of 100."""
    drawing(monkeypatch, range(20))
    with Guard(fixed(), tmp_path / "run") as opened:
        opened.draw(1)
        yield opened


def test_an_update_of_a_client_that_was_not_drawn_is_refused(running, tmp_path):
    """Ten updates where five clients were drawn: those of the others do not get in."""
    for client in range(15, 20):
        running.add(1, "all", client, np.ones(SIZE))
    for client in range(20, 25):
        rule = f"must be a client of all that was drawn in round 1, found {client}"
        with pytest.raises(InputError, match=rule):
            running.add(1, "all", client, np.ones(SIZE))
    running.release(1)
    running.record(1)
    [share] = ledger_of(tmp_path / "run", fixed())[0].shares
    assert share.cohort == 5
    assert share.drawn == 20
    assert share.clipped == 5


def test_a_resend_replaces_and_never_adds_up(running):
    last_update = np.linspace(-0.01, 0.01, SIZE)
    for sent in (np.full(SIZE, 7.0), np.full(SIZE, np.nan), last_update):
        running.add(1, "all", 3, sent)
    total = running.total("all")
    assert total.reported == 1
    assert total.clipped == 0
    assert total.excluded == 0
    assert np.array_equal(total.total, last_update)
    assert total.largest_norm == np.linalg.norm(last_update)


def test_the_sum_does_not_depend_on_the_order_of_updates(tmp_path, monkeypatch):
    drawing(monkeypatch, range(20))
    updates = np.random.default_rng(1).normal(size=(20, SIZE))
    sums = []
    for name, order in (("up", range(20)), ("down", range(19, -1, -1))):
        with Guard(fixed(), tmp_path / name) as opened:
            opened.draw(1)
            for client in order:
                opened.add(1, "all", client, updates[client])
            sums.append(opened.total("all").total)
    assert np.array_equal(*sums)
    clipped = NORM * updates / np.linalg.norm(updates, axis=1, keepdims=True)
    assert np.allclose(sums[0], clipped.sum(axis=0), rtol=1e-5, atol=1e-6)


def test_a_resend_is_refused_where_only_the_sum_is_kept(tmp_path, monkeypatch):
    drawing(monkeypatch, range(20))
    with Guard(fixed(), tmp_path, resends=False) as opened:
        opened.draw(1)
        opened.add(1, "all", 3, np.ones(SIZE))
        opened.add(1, "all", 4, np.zeros(SIZE))
        before = opened.total("all").total.copy()
        with pytest.raises(
            InputError, match=r"must send one update a round.*, found 3"
        ):
            opened.add(1, "all", 3, np.ones(SIZE))
        assert np.array_equal(opened.total("all").total, before)
        assert opened.total("all").reported == 2


@pytest.mark.parametrize("resends", [True, False])
def test_what_was_seen_of_updates_is_counted(tmp_path, monkeypatch, resends):
    """Clipped and scaled whatever the client did; what is not finite counts as zero."""
    drawing(monkeypatch, range(4), "loose", strict=())
    with Guard(two_groups(1), tmp_path, resends=resends) as opened:
        opened.draw(1)
        scale = opened.plan.group("loose").scale
        sent = (np.full(SIZE, 3.0), np.zeros(SIZE), np.full(SIZE, np.inf))
        for client, update in enumerate(sent):
            opened.add(1, "loose", client, update)
        total = opened.total("loose")
        assert total.reported == 3
        assert total.clipped == 1
        assert total.excluded == 1
        assert total.largest_norm == pytest.approx(NORM * scale, rel=1e-6)
        with pytest.raises(InputError, match=f"must have {SIZE} numbers, found 3"):
            opened.add(1, "loose", 3, np.zeros(3))


def test_an_update_belongs_to_the_open_round(running, tmp_path):
    with pytest.raises(InputError, match="round: must be 1, the first round"):
        running.add(2, "all", 3, np.ones(SIZE))
    running.add(1, "all", 3, np.ones(SIZE))
    running.release(1)
    running.record(1)
    with pytest.raises(InputError, match="booked and never released again"):
        running.add(1, "all", 3, np.ones(SIZE))  # one that comes late
    with pytest.raises(InputError, match="must be drawn by the guard before"):
        running.add(2, "all", 3, np.ones(SIZE))
    running.draw(2)
    assert running.total("all").reported == 0


def test_a_sum_of_unknown_clients_is_recorded_as_that(tmp_path):
    """A secure aggregation tells nobody's update apart: clipping is not shown."""
    plan = two_groups()
    with Guard(plan, tmp_path / "run") as opened:
        for round_ in opened.rounds():
            opened.draw(round_)
            opened.release(round_, {"strict": np.full(SIZE, 0.01)})
            opened.record(round_)
        verdict = opened.verdict()
    for record in ledger_of(tmp_path / "run", plan):
        [strict] = [share for share in record.shares if share.group == "strict"]
        assert strict.participants is not None
        assert strict.cohort is None
        assert strict.largest_norm is None
        assert strict.clipped is None
    assert verdict.outcome == "unverified"
    assert "clipping" in {check.name for check in verdict.not_shown}


def test_sums_beside_updates_are_refused(running, tmp_path):
    made_up = GroupTotal(total=np.ones(SIZE), reported=10)
    with pytest.raises(InputError, match=r"sums\.all: must be an array; updates whose"):
        running.release(1, {"all": made_up})
    running.add(1, "all", 3, np.ones(SIZE))
    with pytest.raises(InputError, match="sums: must be left out in a round"):
        running.release(1, {"all": np.ones(SIZE)})
    assert not (tmp_path / "run" / LEDGER).exists()


def test_a_framework_that_sums_itself_has_no_more_updates_than_clients(running):
    seen = GroupTotal(total=np.ones(SIZE), reported=21)
    std = running.noise_std(1)
    with pytest.raises(
        InputError, match="one update of each of 20 drawn clients, found 21"
    ):
        running.record_noised(1, SIZE, std, seen, np.ones(SIZE))
    assert running.round == 1


def test_resends_in_a_whole_run_leave_it_kept(tmp_path):
    plan = two_groups()
    with Guard(plan, tmp_path) as opened:
        for round_ in opened.rounds():
            members = opened.draw(round_).members
            for group, client in [*members, *members[::-1]]:
                opened.add(round_, group, client, np.full(SIZE, 0.01 * client))
            nobody = None if members else {"strict": np.zeros(SIZE)}
            opened.record(round_, opened.release(round_, nobody).mean)
        verdict = opened.verdict()
    assert verdict.outcome == "kept"
    with Guard(plan, tmp_path) as opened:
        train(opened)


@pytest.mark.parametrize(
    ("client", "update", "rule"),
    [
        (0.5, np.ones(SIZE), "client: must be a whole number"),
        (None, "text", "update: must be an array of real numbers"),
        (None, None, "update: must be an array of real numbers"),
        (None, np.ones(SIZE) * 1j, "update: must be an array of real numbers"),
    ],
)
def test_what_is_no_update_is_refused_in_a_line(client, update, rule, tmp_path):
    with Guard(two_groups(), tmp_path / "run") as opened:
        group, position = opened.draw(1).members[0]
        sender = position if client is None else client
        with pytest.raises(InputError, match=rule):
            opened.add(1, group, sender, update)


@pytest.mark.parametrize("coordinates", [SIZE, None])
def test_one_client_does_not_decide_the_length_of_all(
    coordinates, tmp_path, monkeypatch, caplog
):
    drawing(monkeypatch, range(20))
    with Guard(fixed(), tmp_path, coordinates=coordinates) as opened:
        opened.draw(1)
        if coordinates is None:
            opened.add(1, "all", 3, np.ones(2))
            with pytest.raises(InputError, match="must have 2 numbers"):
                opened.add(1, "all", 4, np.ones(SIZE))
            # Who blocks all others is named, once.
            [line] = caplog.messages
            assert line.startswith("the first update, of client 3 of all, has 2 num")
            assert f"model.parameters of the plan is {SIZE}" in line
            return
        for round_ in (1, 2):
            opened.draw(round_)
            with pytest.raises(InputError, match=f"must have {SIZE} numbers"):
                opened.add(round_, "all", 3, np.ones(2))
            opened.add(round_, "all", 4, np.ones(SIZE))
            opened.release(round_)
            opened.record(round_)
    assert not caplog.messages


def test_after_the_first_release_its_length_stays(tmp_path, monkeypatch):
    drawing(monkeypatch, range(20))
    with Guard(fixed(), tmp_path) as opened:
        opened.draw(1)
        opened.add(1, "all", 3, np.ones(SIZE))
        opened.release(1)
        opened.record(1)
        opened.draw(2)
        with pytest.raises(InputError, match=f"must have {SIZE} numbers"):
            opened.add(2, "all", 3, np.ones(2))


def test_a_run_whose_updates_cancel_exactly_is_kept(tmp_path):
    """A sum of zero has no direction, along which a part of the noise is tested."""
    everybody = plan_of({"all": (20, 50.0, 1.0, 20.0)}, 3, sampling="full")
    with Guard(everybody, tmp_path) as opened:
        for round_ in opened.rounds():
            for client in opened.draw(round_).clients["all"]:
                sent = np.ones(SIZE)
                opened.add(round_, "all", client, sent if client % 2 else -sent)
            assert not opened.total("all").total.any()
            opened.release(round_)
            opened.record(round_)
    assert opened.verdict().outcome == "kept"


@pytest.mark.parametrize("resends", [True, False])
def test_what_a_guard_hands_out_is_the_caller_s_to_change(
    resends, tmp_path, monkeypatch
):
    """Neither the sum that is released nor the stored bits follow."""
    drawing(monkeypatch, range(20))
    with Guard(fixed(), tmp_path, resends=resends) as opened:
        opened.draw(1)
        opened.add(1, "all", 0, np.ones(SIZE))
        opened.total("all").total += 100.0
        assert np.linalg.norm(opened.total("all").total) == pytest.approx(NORM)
        first = opened.release(1)
        bits = first.sums[0].tobytes()
        first.sums[0][:] = 0.0
        assert opened.release(1).sums[0].tobytes() == bits
