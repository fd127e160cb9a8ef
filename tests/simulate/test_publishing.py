"""What is published of a run: computed by the verifier, closed, equal to the bit."""

import json
import random
import secrets
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import privplan
import simulate
from privplan import releases
from privplan.bundle import MODEL, Bundle, model_bytes, read_model
from privplan.errors import BrokenRunError, InputError, UnverifiedRunError
from privplan.guard.guard import Guard
from privplan.guard.open_round import GroupTotal
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.publishing import NO_MODEL, publish, read_bundle
from privplan.record import CHECKPOINT, LEDGER, PLAN, RECORD, REPLAY, VERDICT, RunRecord
from privplan.secure_stream import NoiseKey
from privplan.spec.spec import Spec
from privplan.verification.verify import judge, load_run
from simulate import mechanisms
from simulate import publishing as chapter
from simulate.engine.loop import train
from simulate.replay.compare import Comparisons
from simulate.replay.model import algorithm_of
from simulate.runs.ledger_writer import MemoryLedger
from simulate.runs.request import Request, prepare
from simulate.runs.run import execute
from simulate.server import SERVER_OPTIMISERS, Server
from tests.command import answer, refused
from tests.command import privplan as privplan_command
from tests.guard import plans as guarded
from tests.simulate import flips
from tests.simulate.conftest import digits_spec
from tests.simulate.own_runs import Net, arrays, data
from tests.simulate.own_runs import plan as own_plan

FILES = {PLAN, VERDICT, "certificate.json", MODEL}
ROUNDS = 4


@pytest.fixture(scope="module")
def short_plan():
    """The plan of the preset for four rounds: each bundle executes them again."""
    return solve(digits_spec(rounds=ROUNDS))


def request_of(plan, folder, **changes):
    """A run of a plan on the digits."""
    return Request(plan, "planned", "digits", folder, seed=2, **changes)


def changed_plan(plan, **changes):
    """The plan of a spec that differs from another plan's."""
    fields = plan.spec.model_dump(mode="json", exclude_none=True)
    return privplan.solve({**fields, **changes})


@pytest.fixture(scope="module")
def module_path(tmp_path_factory):
    return tmp_path_factory.mktemp("published")


@pytest.fixture(scope="module")
def run(short_plan, module_path):
    folder = module_path / "run"
    execute(request_of(short_plan, folder))
    return folder


@pytest.fixture(scope="module")
def secure(short_plan, module_path):
    """A run of which the trainer kept the key."""
    folder = module_path / "secure"
    execute(request_of(short_plan, folder, noise="secure"))
    return folder


@pytest.fixture(scope="module")
def published(run, module_path):
    """The bundle of a run of which all rounds were executed again."""
    return publish(run, module_path / "bundle").folder


@pytest.fixture
def copy(run, tmp_path):
    return shutil.copytree(run, tmp_path / "run")


def _contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_bundle_holds_four_files_and_the_model_that_was_trained(
    run, published, short_plan, tmp_path
):
    publish(run, tmp_path / "again")
    assert set(_contents(published)) == FILES
    assert _contents(published) == _contents(tmp_path / "again")
    bundle = Bundle.load(published)
    verdict = bundle.verdict
    assert verdict.level == "executed"
    assert verdict.executed == ROUNDS
    assert verdict.rounds == ROUNDS
    assert verdict.model == "all"
    assert verdict.initial == "seed"
    assert verdict.algorithm == "planned"
    for group in verdict.groups:
        assert group.certified_upper == group.realised_upper <= group.budget
    experiment = prepare(request_of(short_plan, run))
    end = train(experiment, MemoryLedger(short_plan.digest))
    released = experiment.algorithm.server.released(end.theta, end.server)
    stored = np.concatenate([values.ravel() for values in bundle.parameters.values()])
    # The verifier's own training sums in another order: equal up to rounding.
    assert_allclose(stored, released.numpy(), rtol=0, atol=1e-6)
    shapes = {name: values.shape for name, values in bundle.parameters.items()}
    assert list(shapes.items()) == [
        (name, tuple(shape)) for name, shape in experiment.model.shapes
    ]


def test_no_bit_of_the_model_is_the_trainers_choice(
    published, short_plan, tmp_path, monkeypatch
):
    """A trainer who writes a message into the last bits of all releases."""
    honest = mechanisms._released

    def with_message(*release):
        released = honest(*release)
        bits = released.vector.view(torch.int32)
        message = torch.arange(len(bits), dtype=torch.int32) % 4
        hidden = ((bits & ~3) | message).view(torch.float32)
        return replace(released, vector=hidden)

    monkeypatch.setattr(mechanisms, "_released", with_message)
    execute(request_of(short_plan, tmp_path / "run"))
    monkeypatch.undo()
    publish(tmp_path / "run", tmp_path / "bundle")
    assert _contents(tmp_path / "bundle") == _contents(published)

    # Computed from the releases the model would carry the message, so there is none.
    done = privplan_command(
        "publish", tmp_path / "run", "--rounds", 1, "-o", tmp_path / "recorded"
    )
    assert "the model is published when the verifier has trained all" in done.stderr
    recorded = read_bundle(tmp_path / "recorded")
    assert recorded.verdict.level == "recorded"
    assert recorded.verdict.model == "none"
    assert recorded.parameters is None


def test_what_rounding_hides_changes_nothing_of_a_bundle(
    short_plan, tmp_path, monkeypatch
):
    """Whether training lies at a kink follows from the records."""
    run = tmp_path / "run"
    execute(request_of(short_plan, run, noise="secure"))
    publish(run, tmp_path / "shown", plan=short_plan)
    compare = Comparisons.trained

    def amplified(self, *releases):
        compare(self, *releases)
        self.lacks("training that rounding does not change")

    monkeypatch.setattr(Comparisons, "trained", amplified)
    hidden = publish(run, tmp_path / "hidden", plan=short_plan)
    assert any("rounding does not change" in note for note in hidden.notes)
    assert _contents(tmp_path / "hidden") == _contents(tmp_path / "shown")


def test_a_model_that_diverged_is_refused_in_one_line(run, tmp_path, monkeypatch):
    """Who reads a bundle takes finite numbers only."""
    computed = chapter.published_model

    def diverged(*arguments):
        model = computed(*arguments)
        name = next(iter(model.parameters))
        infinite = np.full_like(model.parameters[name], np.inf)
        return replace(model, parameters={**model.parameters, name: infinite})

    monkeypatch.setattr(chapter, "published_model", diverged)
    with pytest.raises(InputError, match="model: must be finite to be published"):
        publish(run, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_a_plan_that_nobody_approved_is_named(run, short_plan, tmp_path):
    """Its warnings, names and last digits are whatever the trainer wrote."""
    short_plan.save(tmp_path / "plan.json")
    words = ("publish", run, "--rounds", 1)
    done = privplan_command(*words, "-o", tmp_path / "one")
    assert "give the one that was approved before training (--plan)" in done.stderr
    assert "(not compared with an approved one)" in done.stdout
    done = privplan_command(
        *words, "--plan", tmp_path / "plan.json", "-o", tmp_path / "two"
    )
    assert "approved" not in done.output
    assert Bundle.load(tmp_path / "two").verdict.approved

    changed = changed_plan(short_plan, name="patient 7 is ill")
    with pytest.raises(BrokenRunError):
        publish(run, tmp_path / "three", rounds=1, plan=changed)


def test_a_run_in_python_is_published_under_the_plan_that_was_given(
    short_plan, tmp_path
):
    run = simulate.train(short_plan, dataset="digits", seed=2, folder=tmp_path / "run")
    bundle = run.publish(tmp_path / "given", rounds=1)
    assert bundle.verdict.approved
    assert "its publisher says: kept (simulation), as recorded" in repr(bundle)
    assert list(bundle.to_frame()["group"]) == ["strict", "medium", "loose"]
    again = run.publish(tmp_path / "again", rounds=1, plan=short_plan)
    assert again.contents() == Bundle.load(tmp_path / "given").contents()

    changed = changed_plan(short_plan, name="patient 7 is ill")
    with pytest.raises(BrokenRunError, match="approved was"):
        run.publish(tmp_path / "other", rounds=1, plan=changed)
    with pytest.raises(InputError, match="must be the plan that was approved"):
        run.publish(tmp_path / "copied", rounds=1, plan=run.folder)


def test_the_plan_of_a_method_is_approved_before_it_trains(short_path, tmp_path):
    """Of a method that makes another plan of the spec, and of one that does not."""
    executed = tmp_path / "executed.json"
    words = (short_path, "--algorithm", "DP-FedAvg", "--plan-only", executed)
    assert "DP-FedAvg executes plan" in answer("simulate", *words)
    assert Plan.load(executed).digest != Plan.load(short_path).digest

    folder = tmp_path / "run"
    answer("simulate", short_path, "--algorithm", "DP-FedAvg", "-o", folder)
    assert privplan.verify(folder, rounds=0, plan=executed).outcome == "kept"
    assert privplan.verify(folder, rounds=0, plan=short_path).outcome != "kept"

    words = (short_path, "--algorithm", "planned", "--plan-only", executed)
    answer("simulate", *words)
    assert Plan.load(executed).digest == Plan.load(short_path).digest


def test_the_rounds_that_are_executed_again_are_the_same_at_every_call(run, tmp_path):
    answer("publish", run, "--rounds", 2, "-o", tmp_path / "one")
    answer("publish", run, "--rounds", 2, "-o", tmp_path / "two")
    assert _contents(tmp_path / "one") == _contents(tmp_path / "two")
    # How many agree depends on rounding, and so on records.
    assert Bundle.load(tmp_path / "one").verdict.executed == 0
    assert Bundle.load(tmp_path / "one").verdict.level == "recorded"


def test_a_fitted_checkpoint_is_not_the_model(copy, tmp_path):
    """It is named, the run is not published with it, and Python does not read it."""
    torch.save({"theta": torch.ones(2410)}, copy / CHECKPOINT)
    with pytest.raises(UnverifiedRunError, match="holds the state of its clients"):
        publish(copy, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()
    arguments = {"dataset": "digits", "seed": 2, "folder": copy}
    trained = simulate.train(Plan.load(copy), **arguments)
    assert not (copy / CHECKPOINT).exists()
    bundle = trained.publish(tmp_path / "bundle")
    for name, value in trained.model().named_parameters():
        assert_allclose(
            value.detach().numpy(), bundle.parameters[name], rtol=0, atol=1e-6
        )


def _edit(path, old, new):
    path.write_bytes(path.read_bytes().replace(old, new, 1))


def _change(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 64
    path.write_bytes(content)


def _change_strength(folder):
    record = json.loads((folder / RECORD).read_text())
    record["configuration"]["numbers"] = {"strength": 2.0}
    (folder / RECORD).write_text(json.dumps(record))


def _edit_ledger(folder):
    _edit(folder / LEDGER, b'"round":3', b'"round":4')


def _change_release(folder):
    _change(folder / "vectors.bin", 60_000)


def _change_initial_vector(folder):
    _change(folder / "vectors.bin", 4_000)


@pytest.mark.parametrize(
    "break_run",
    [_edit_ledger, _change_release, _change_initial_vector, _change_strength],
)
def test_a_broken_run_is_refused_in_one_line(break_run, copy, tmp_path):
    break_run(copy)
    line = refused("publish", copy, "--rounds", 0, "-o", tmp_path / "bundle", code=4)
    assert "must be kept to be published; broken" in line
    assert not (tmp_path / "bundle").exists()


def test_a_rehearsal_is_refused_and_own_people_are_published_without_scores(tmp_path):
    arguments = {"model": Net, "data": data(), "seed": 3}
    solved = own_plan(tmp_path)
    rehearsal = simulate.train(
        solved, folder=tmp_path / "seeded", noise="seeded", **arguments
    )
    with pytest.raises(UnverifiedRunError, match="a rehearsal protected nobody"):
        rehearsal.publish(tmp_path / "bundle")
    secure = simulate.train(solved, folder=tmp_path / "secure", **arguments)
    assert secure.record.scores_are_of_members
    verdict = secure.publish(tmp_path / "bundle").verdict
    assert verdict.believed == ("module",)
    assert "the code of its own module believed" in verdict.line
    assert verdict.executed == 5
    assert verdict.noise == "secure"
    assert verdict.initial == "module"
    # Without data and module nothing can be executed, so there is no model.
    with pytest.raises(InputError, match="plan: must be the one that was approved"):
        publish(tmp_path / "secure", tmp_path / "other")
    published = publish(tmp_path / "secure", tmp_path / "other", plan=solved)
    assert published.bundle.verdict.model == "none"
    assert NO_MODEL in published.notes


def test_scores_on_people_who_are_no_clients_may_be_shown(tmp_path):
    test = simulate.Data(arrays()["x"][:40], arrays()["y"][:40], np.arange(900, 940))
    records = data(test=test, test_of_others=True)
    run = simulate.train(
        own_plan(tmp_path), model=Net, data=records, folder=tmp_path / "run"
    )
    assert not run.record.scores_are_of_members
    # Nobody names groups there, and clients' labels weigh no score.
    assert run.record.accuracy is not None
    assert not run.record.accuracy_by_group
    tuned = simulate.train(
        own_plan(tmp_path),
        model=Net,
        data=records,
        algorithm="DP-FedAvg-FT",
        folder=tmp_path / "tuned",
    )
    # The models that were scored are of clients, without noise.
    assert tuned.record.scores_are_of_members
    members = simulate.Data(
        arrays()["x"][:40], arrays()["y"][:40], arrays()["client"][:40]
    )
    with pytest.raises(InputError, match="people who are no clients"):
        data(test=members, test_of_others=True)
    with pytest.raises(InputError, match="test_of_others: needs test"):
        data(test_of_others=True)


def test_a_record_cannot_say_that_a_share_of_the_clients_are_others(tmp_path):
    """Whoever executes the run again sees whose test records they were."""
    run = simulate.train(
        own_plan(tmp_path), model=Net, data=data(), folder=tmp_path / "run", seed=3
    )
    path = tmp_path / "run" / RECORD
    entries = json.loads(path.read_text())
    entries["configuration"]["test"] = "others"
    path.write_text(json.dumps(entries, indent=1) + "\n")
    verdict = run.verdict
    assert verdict.outcome == "unverified"
    assert "record.configuration.test" in str(verdict)


def test_neighbours_differ_in_the_model_and_nowhere_else(tmp_path, monkeypatch):
    """With one seed and one key, and one client's records replaced."""
    monkeypatch.setattr(NoiseKey, "new", classmethod(lambda cls: cls(bytes(range(32)))))
    changed = arrays()
    rows = changed["client"] == 7
    changed["x"][rows] = -3.0 * changed["x"][rows]
    changed["y"][rows] = 1 - changed["y"][rows]
    solved = own_plan(tmp_path)
    bundles = []
    for name, records in (("one", arrays()), ("two", changed)):
        run = simulate.train(
            solved,
            model=Net,
            data=simulate.Data(**records),
            seed=3,
            folder=tmp_path / name,
        )
        run.publish(tmp_path / f"{name}-bundle")
        bundles.append(_contents(tmp_path / f"{name}-bundle"))
    first_bundle, second_bundle = bundles
    assert {name for name in FILES if first_bundle[name] != second_bundle[name]} == {
        MODEL
    }


def test_a_deployment_is_published_without_a_model(tmp_path):
    plan = guarded.two_groups()
    plan.save(tmp_path / "plan.json")
    with Guard(plan, tmp_path / "run") as guard:
        guarded.train(guard)
    words = ("publish", tmp_path / "run", "-o", tmp_path / "bundle")
    assert "plan: must be the one that was approved" in refused(*words)
    line = answer(*words, "--plan", tmp_path / "plan.json")
    assert "wrote" in line
    assert set(_contents(tmp_path / "bundle")) == FILES - {MODEL}
    verdict = Bundle.load(tmp_path / "bundle").verdict
    assert verdict.model == "none"
    assert verdict.algorithm == "deployment"
    assert verdict.level == "recorded"


def test_a_deployment_that_ended_early_is_published_as_such(tmp_path):
    plan = guarded.two_groups()
    with Guard(plan, tmp_path / "run") as guard:
        guarded.train(guard, rounds=2)
        guard.fail(3, "too few reports")
        guard.finish()
    publish(tmp_path / "run", tmp_path / "bundle", plan=plan)
    verdict = read_bundle(tmp_path / "bundle").verdict
    assert verdict.released == 2
    assert verdict.rounds == 12
    for group in verdict.groups:
        assert group.realised_upper < group.certified_lower


def test_a_deployment_in_which_nobody_dropped_out_is_read(tmp_path):
    """Its noise is that of all, and more than the plan counts on."""
    spec = {
        "name": "dropouts",
        "groups": [{"name": "all", "clients": 100, "epsilon": 2.0}],
        "delta": 1e-4,
        "rounds": 3,
        "cohort": 20,
        "clipping_norm": 0.5,
        "model": {"name": "my-net", "parameters": guarded.SIZE},
        "planning": {"dropout_tolerance": 0.1},
    }
    plan = solve(Spec.parse(spec))
    rng = np.random.default_rng(1)
    with Guard(plan, tmp_path / "run") as guard:
        for round_ in guard.rounds():
            members = guard.draw(round_).members
            std = guard.noise_std(round_) / 0.9**0.5
            largest_norm = plan.spec.clipping_norm if members else 0.0
            seen = GroupTotal(np.zeros(guarded.SIZE), len(members), largest_norm)
            update = rng.normal(size=guarded.SIZE) * std
            guard.record_noised(
                round_, guarded.SIZE, std, seen, update, secrets.token_hex(12)
            )
    publish(tmp_path / "run", tmp_path / "bundle", plan=plan)
    [group] = read_bundle(tmp_path / "bundle").verdict.groups
    assert group.realised_upper < group.certified_lower


def fitted(options):
    """A server optimiser that moves the model wherever it likes."""
    del options

    def move(theta, step, state):
        return torch.full_like(theta, 0.5), state

    return Server("fitted", lambda theta: {}, move)


def test_what_an_own_server_makes_of_the_data_is_not_published(
    tmp_path, short_plan, monkeypatch
):
    """It may read the data again, and its model is no function of the releases then."""
    monkeypatch.setitem(SERVER_OPTIMISERS._components, "momentum", fitted)
    with_server = changed_plan(short_plan, server={"optimizer": "momentum"})
    execute(request_of(with_server, tmp_path / "run"))
    verdict = privplan.verify(tmp_path / "run")
    assert verdict.level == "recorded"
    assert "its server optimiser momentum is your own" in verdict.not_executed
    with pytest.raises(UnverifiedRunError, match="momentum is your own"):
        publish(tmp_path / "run", tmp_path / "bundle")


def test_releases_that_are_too_large_to_be_stored_are_executed_again(
    short_plan, published, tmp_path, monkeypatch
):
    monkeypatch.setattr(releases, "MOST_BYTES", 1000)
    arguments = {"dataset": "digits", "seed": 2, "folder": tmp_path / "large"}
    trained = simulate.train(short_plan, **arguments)
    bundle = trained.publish(tmp_path / "bundle")
    for name, values in Bundle.load(published).parameters.items():
        assert_allclose(bundle.parameters[name], values, rtol=0, atol=1e-5)
    with pytest.raises(UnverifiedRunError, match="the releases of all rounds"):
        publish(tmp_path / "large", tmp_path / "other", rounds=1)

    # In memory there is a model that nothing has verified; a reused run has none.
    with pytest.warns(UserWarning, match="unverified model"):
        trained.model()
    with pytest.raises(InputError, match="releases: must be stored"):
        simulate.train(short_plan, **arguments).model()


# What somebody writes into the verdict of a bundle in place of its first words.
EDITED = {
    "a field": (b'"kind"', b'"note": "", "kind"'),
    "free text": (b'"planned"', b'"kept, \\n"'),
    "spaces": (b" ", b"  "),
    "another plan": (b'"plan": "', b'"plan": "0'),
}


@pytest.fixture
def bundle(published, tmp_path):
    return Path(shutil.copytree(published, tmp_path / "bundle"))


@pytest.mark.parametrize("what", EDITED)
def test_the_verdict_of_a_bundle_is_closed(what, bundle):
    _edit(bundle / VERDICT, *EDITED[what])
    with pytest.raises(InputError):
        Bundle.load(bundle)


def test_a_bundle_has_no_further_file(bundle):
    (bundle / "note.txt").touch()
    with pytest.raises(InputError):
        Bundle.load(bundle)


def test_a_bundle_has_no_file_less(bundle):
    (bundle / MODEL).unlink()
    with pytest.raises(InputError):
        Bundle.load(bundle)


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"\0", b""), (b"", b"clear sums")],
    ids=["bytes before the model", "bytes behind the model"],
)
def test_the_model_of_a_bundle_is_closed(before, after, bundle):
    model = bundle / MODEL
    model.write_bytes(before + model.read_bytes() + after)
    with pytest.raises(InputError):
        Bundle.load(bundle)


# Fields of a verdict, by their place, and what else somebody may write there.
WRITTEN = {
    "unit": "record",
    "relation": "replace_one",
    "rounds": 60,
    "executed": 999,
    "level": "recorded",
    "model": "none",
    "initial": None,
    "privplan": "patient-17-is-ill",
    "released": 7,
    "groups.0.group": "nobody",
    "groups.0.clients": 10_000,
    "groups.0.budget": 1.0,
    "groups.0.delta": 1e-9,
    "groups.0.sampling": "full",
    "groups.0.accountant": "magic",
    "groups.0.certified_upper": 1.0,
    "groups.0.realised_upper": 1.0,
    "groups.0.realised_lower": 1e9,
    "groups.1.realised_upper": 50.0,
}


@pytest.mark.parametrize("place", WRITTEN)
def test_nothing_in_a_bundle_contradicts_its_plan(place, bundle):
    data = json.loads((bundle / VERDICT).read_text())
    *outer, field = place.split(".")
    entry = data
    for key in outer:
        entry = entry[int(key) if key.isdigit() else key]
    entry[field] = WRITTEN[place]
    if place == "rounds":
        entry["executed"] = WRITTEN[place]
    (bundle / VERDICT).write_text(json.dumps(data, indent=1) + "\n")
    with pytest.raises(InputError):
        read_bundle(bundle)


def _is_no_number(name, values):
    return {name: values * np.nan}


def _has_a_further_array(name, values):
    return {name: values, "records": np.zeros(64)}


def _has_a_number_less(name, values):
    return {name: values.ravel()[1:]}


def _has_a_name_that_moves(name, values):
    return {"\x1b[31m": values}


@pytest.mark.parametrize(
    "change",
    [_is_no_number, _has_a_further_array, _has_a_number_less, _has_a_name_that_moves],
)
def test_the_model_of_a_bundle_has_the_planned_parameters(change, bundle):
    [first_parameter, *further] = read_model(bundle / MODEL).items()
    parameters = {**change(*first_parameter), **dict(further)}
    (bundle / MODEL).write_bytes(model_bytes(parameters))
    with pytest.raises(InputError, match=r"bundle\.model"):
        read_bundle(bundle)


def test_the_model_is_read_by_safetensors_too(bundle):
    loaders = pytest.importorskip("safetensors.numpy")
    parameters = read_model(bundle / MODEL)
    for name, values in loaders.load_file(bundle / MODEL).items():
        assert_array_equal(values, parameters[name])


def test_equal_parameters_give_equal_bytes_and_odd_shapes_come_back(tmp_path):
    parameters = {
        "scalar": np.float32(2.5).reshape(()),
        "empty": np.zeros((0, 3), np.float32),
    }
    (tmp_path / "model").write_bytes(model_bytes(parameters))
    again = read_model(tmp_path / "model")
    assert [(name, values.shape) for name, values in again.items()] == [
        ("scalar", ()),
        ("empty", (0, 3)),
    ]


@pytest.mark.slow
def test_a_flipped_bit_is_refused_or_without_effect(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    before = flips.published(folder)
    source = random.Random(5)
    outcomes = {flips.flip(folder, source, before)[0] for _ in range(25)}
    assert "another bundle" not in outcomes
    assert len(outcomes) > 1
    assert flips.published(folder) == before
    assert RunRecord.load(folder).status == "complete"
    assert privplan.verify(folder, rounds=0).outcome == "kept"


def test_a_bundle_is_compared_with_the_plan_of_its_reader(bundle, short_plan, tmp_path):
    path = tmp_path / "plan.json"
    short_plan.save(path)
    done = privplan_command("verify", bundle, "--plan", path)
    assert done.exit_code == 5
    assert "its plan is the one of" in done.stdout
    assert read_bundle(bundle, plan=short_plan).plan.digest == short_plan.digest

    changed_plan(short_plan, name="another").save(path)
    done = privplan_command("verify", bundle, "--plan", path)
    assert done.exit_code == 4
    assert "approved was" in done.stderr
    for words in (("--rounds", "1"), ("--noise-key", path)):
        assert "must be left out for a bundle" in refused("verify", bundle, *words)


def test_no_bundle_is_written_into_its_run(copy):
    words = ("publish", copy, "--rounds", 1, "-o", copy / "bundle")
    assert "output: must be outside the run folder" in refused(*words)
    assert privplan.verify(copy, rounds=0).outcome == "kept"


def test_verify_reads_a_bundle_and_says_who_can_execute_the_run(run, bundle):
    done = privplan_command("verify", bundle)
    assert done.exit_code == 5
    executed = f"executed again ({ROUNDS} of {ROUNDS} rounds; model trained by the"
    claim = f"kept (simulation), {executed}"
    assert f"a bundle, whose publisher says: {claim}" in done.stdout
    assert "who has its run folder can execute a simulation again" in done.stdout
    assert "the trainer's workplace" in answer("verify", run, "--rounds", 0)
    line = refused("report", bundle, "-o", bundle.parent / "page.html")
    assert f"of a bundle, privplan verify {bundle}" in line


def _renamed(run, folder, **changes):
    """A copy of a run whose record names other things."""
    shutil.copytree(run, folder)
    (folder / REPLAY).unlink(missing_ok=True)
    record = json.loads((folder / RECORD).read_text())
    (folder / RECORD).write_text(json.dumps({**record, **changes}))
    return folder


@pytest.mark.parametrize(
    "changes",
    [{"partition": "iid-"}, {"dataset": "digits:1500"}, {"dataset": "digits:0"}],
    ids=["no partition", "other records", "no records"],
)
def test_no_name_that_cannot_be_saves_a_run_from_execution(run, tmp_path, changes):
    renamed = _renamed(run, tmp_path / "run", **changes)
    assert privplan.verify(renamed).outcome == "unverified"
    with pytest.raises(UnverifiedRunError, match=next(iter(changes))):
        publish(renamed, tmp_path / "bundle")


def test_a_name_in_another_case_is_no_name_of_a_run(run, tmp_path):
    renamed = _renamed(run, tmp_path / "run", algorithm="plAnned")
    assert privplan.verify(renamed).outcome == "broken"
    with pytest.raises(BrokenRunError, match="must be written planned"):
        publish(renamed, tmp_path / "bundle")
    plan = Plan.load(renamed / PLAN)
    record = RunRecord.load(renamed)
    with pytest.raises(InputError, match="must be written planned"):
        algorithm_of(plan, record)


def test_a_method_that_nobody_knows_is_not_published(secure, short_plan, tmp_path):
    """Such a run is kept as recorded, and one bit of its name is enough for that."""
    renamed = _renamed(secure, tmp_path / "run", algorithm="plannmd")
    with pytest.raises(InputError, match="algorithm: is not known"):
        publish(renamed, tmp_path / "bundle", plan=short_plan)


def test_data_that_nobody_registered_save_no_run_from_execution(
    secure, short_plan, tmp_path
):
    assert privplan.verify(secure).level == "executed"
    renamed = _renamed(secure, tmp_path / "run", dataset="eigits")
    assert privplan.verify(renamed).outcome == "unverified"
    with pytest.raises(UnverifiedRunError, match="dataset: must be registered"):
        publish(renamed, tmp_path / "bundle", plan=short_plan)


def test_only_execution_shows_that_data_are_public(secure, tmp_path):
    """A run with secure noise that names data which are not at hand."""
    published = publish(secure, tmp_path / "one", rounds=1)
    assert published.bundle.verdict.level == "recorded"
    not_shown = "did not show that its data are public"
    with pytest.raises(InputError, match=not_shown):
        publish(secure, tmp_path / "bundle", rounds=0)
    renamed = _renamed(secure, tmp_path / "run", dataset="svhn")
    with pytest.raises(InputError, match=not_shown):
        publish(renamed, tmp_path / "bundle")


def test_that_data_are_public_is_shown_before_seeded_noise_is_published(run, tmp_path):
    """A rehearsal that says it was trained on data that are not at hand."""
    renamed = _renamed(run, tmp_path / "run", dataset="cifar-100")
    options = {"simulate.replay": {"data_dir": tmp_path}}
    assert judge(load_run(renamed), options=options).level == "recorded"
    not_shown = "its data are public"
    with pytest.raises(UnverifiedRunError, match=not_shown):
        publish(renamed, tmp_path / "bundle", options=options)
    with pytest.raises(UnverifiedRunError, match=not_shown):
        publish(run, tmp_path / "bundle", rounds=0)


@pytest.mark.parametrize("name", ["certified_upper", "realised_upper"])
def test_bounds_of_a_bundle_are_those_of_its_plan(run, tmp_path, name):
    folder = tmp_path / "bundle"
    publish(run, folder, rounds=1)
    verdict = json.loads((folder / VERDICT).read_text())
    verdict["groups"][0][name] = 0.1
    (folder / VERDICT).write_text(json.dumps(verdict, indent=1) + "\n")
    assert "strict" in refused("verify", str(folder))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"initial": "plan"}, "initial: must be plan where plan.json names"),
        ({"algorithm": "deployment"}, "algorithm: must be a simulation's"),
    ],
)
def test_a_bundle_says_nothing_that_cannot_be(changes, reason, bundle):
    verdict = json.loads((bundle / VERDICT).read_text())
    text = json.dumps({**verdict, **changes}, indent=1) + "\n"
    (bundle / VERDICT).write_text(text)
    assert reason in refused("verify", bundle)


def test_a_run_that_stores_no_release_says_so(short_plan, tmp_path, monkeypatch):
    monkeypatch.setattr(releases, "MOST_BYTES", 1000)
    simulate.train(short_plan, dataset="digits", seed=2, folder=tmp_path / "run")
    lines = answer("verify", tmp_path / "run", "--rounds", "all")
    assert "it stores no release to compare" in lines.splitlines()[0]


def test_a_plan_is_not_replaced_by_the_one_of_a_method(short_path):
    words = ("--algorithm", "DP-FedAvg", "--plan-only", short_path)
    assert "must be another file" in refused("simulate", short_path, *words)


def test_no_page_is_written_into_a_run(copy):
    page = copy / "report.html"
    assert "output: must be outside the run" in refused("report", copy, "-o", page)
