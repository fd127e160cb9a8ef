"""What newcomers guess is answered: what is meant comes first, and what to do."""

import importlib
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import privplan as privplan_package
from privplan.errors import PrivplanError
from privplan.guard import Guard
from privplan.plan import Plan
from privplan.planning.recipe import relative_noise
from privplan.planning.sweep import parse_vary, sweep
from privplan.report.sweeps import sweep_table
from privplan.report.tables import answer as shown_plan
from privplan.spec.presets import preset
from privplan.yaml_text import load_yaml
from tests.command import answer, privplan, refused


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A spec of the ready preset and its plan."""
    place = tmp_path_factory.mktemp("hints")
    answer("init", "--preset", "digits-planned", "-o", place / "spec.yaml")
    answer("solve", place / "spec.yaml", "-o", place / "plan.json")
    return place


@pytest.fixture(scope="module")
def explained(folder):
    """What is said of the plan."""
    return answer("explain", folder / "plan.json")


def test_explain_begins_with_what_the_plan_gives_whom(explained):
    lines = explained.splitlines()
    for line, group in zip(lines, ("strict", "medium", "loose"), strict=False):
        assert line.startswith(f"each client of {group} is protected by epsilon at")
    assert "poisson sampling; plan " in lines[3]
    assert "add_remove" in lines[3]
    topics = ("strict decides", "Risks: no attack exceeds", "formula")
    places = [explained.index(topic) for topic in topics]
    assert places == sorted(places)


def test_a_group_that_is_merged_is_said_to_get_another_epsilon(explained):
    assert "with strict merged into medium (epsilon 6)" in explained


def test_what_if_says_the_numbers_of_solve(folder):
    plan = Plan.load(folder / "plan.json")
    data = load_yaml(preset("digits-planned"), "spec")
    rows = sweep(data, [parse_vary("rounds=60")])
    table = sweep_table(rows, ["rounds"])
    _, solved = shown_plan(plan)
    of_solve = solved.columns.index("at most")
    of_what_if = table.columns.index("epsilon")
    for row, line in zip(table.rows, solved.rows, strict=True):
        assert row[of_what_if] == line[of_solve]
    assert table.rows[0][-1] == f"{relative_noise(plan):.4g}"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["calibrate", "--epsilon", "1", "--solve-for", "epsilon"],
            "Invalid value for '--solve-for': epsilon is what privplan account computes.",
        ),
        (
            ["init", "--preset", "digts"],
            "preset: is not known (did you mean digits?); must be one of ",
        ),
        (
            ["solve", "spec.yaml", "--clipping-norm", "1"],
            "No such option '--clipping-norm': clipping_norm is a field of the spec; ",
        ),
        (
            ["solve", "spec.yaml", "--set", "rounds=6"],
            "No such option '--set'; a field is changed in the spec, or in Python by ",
        ),
        (
            ["calibrate", "--epsilon", "3", "--cohort", "90"],
            "No such option '--cohort'; --sampling-ratio is the cohort over the clients.",
        ),
        (
            ["verify", "run", "--delta", "1e-5"],
            "No such option '--delta'; a run is judged at the deltas of its plan; ",
        ),
        (
            ["account", "--nois-multiplier", "1"],
            "No such option '--nois-multiplier' (did you mean --noise-multiplier?).",
        ),
        (
            ["account", "--sigma", "1"],
            "No such option '--sigma'; write --noise-multiplier.",
        ),
        (
            ["solve", "spec.yaml", "--epochs", "3"],
            "No such option '--epochs': local.epochs is a field of the spec; change it ",
        ),
        (
            ["solve", "spec.yaml", "--flavour", "red"],
            "No such option '--flavour'; it takes --output, --format, --details, --plot, ",
        ),
        (
            ["what-if", "spec.yaml", "--strict", "1,2"],
            "No such option '--strict'; a group or field is named without dashes: "
            "strict=1,2.",
        ),
        (
            ["account", "--rounds", "5"],
            "Missing option '--noise-multiplier'. Example: privplan account --noise-",
        ),
        (
            ["init", "--data", "patients.csv"],
            "No such option '--data'; privplan check-data DATA prints what belongs in a ",
        ),
        (
            ["report", "plan.json", "--pdf", "page.pdf"],
            "No such option '--pdf'; the page is HTML, which a browser prints as PDF.",
        ),
        (
            ["solve", "spec.yaml", "--html", "page.html"],
            "No such option '--html'; it is an option of what-if.",
        ),
        (
            ["solve", "spec.yaml", "--epsilon", "3"],
            "No such option '--epsilon': groups.GROUP.epsilon is a field of the spec; ",
        ),
        (
            ["account", "--rounds", "five"],
            "Invalid value for '--rounds': 'five' is not a valid integer. Number of ",
        ),
        (
            ["book", "declare", "ages", "--count", "1,2"],
            "Invalid value for '--count': '1,2' is not a whole number. Number of such ",
        ),
        (
            ["verify", "run", "plan.json"],
            "Got unexpected extra argument (plan.json); the plan that was approved is ",
        ),
        (
            ["book", "remove", "run"],
            "No such command 'remove'; use another book, --address FILE: what was ",
        ),
        (["book", "init"], "No such command 'init'; use privplan book add, open or"),
        (["flurb"], "No such command 'flurb'; it has init, solve, what-if, "),
        (
            ["book", "add", "run", "--book", "b"],
            "No such option '--book'; write --addr",
        ),
        (["verify", "run", "--json"], "No such option '--json'; write --format json."),
        (
            ["what-if", "spec.yaml", "--epsilon", "1,2"],
            "No such option '--epsilon'; a group or field is named without dashes: ",
        ),
        (["predict", "run"], "No such command 'predict'; use the module in Python"),
        (
            ["verify", "run", "--approved", "plan.json"],
            "No such option '--approved'; write --plan.",
        ),
        (
            ["explain", "plan.json", "--delta", "1e-5"],
            "delta: is only for --epsilon; a plan has its own",
        ),
        (
            ["explain", "epsilon"],
            "plan: must be a plan; what an epsilon means: explain --epsilon 2, found ",
        ),
        (
            ["account", "plan.json"],
            "Missing option '--noise-multiplier'. Example: privplan account --noise-",
        ),
        (["train", "plan.json"], "No such command 'train'; use privplan simulate."),
        (["show", "plan.json"], "No such command 'show'; use privplan explain PLAN"),
        (["runs", "list"], "No such command 'runs'; use privplan report RUN, or"),
        (
            ["report", "run", "--language", "de"],
            "No such option '--language'; pages are in English, and a browser ",
        ),
        (
            ["init", "--from-data", "patients.csv"],
            "No such option '--from-data'; privplan check-data DATA prints what ",
        ),
        (
            ["verify", "run", "run2"],
            "Got unexpected extra argument (run2); the plan that was approved is named "
            "by --plan FILE, and each run by a command of its own",
        ),
        (
            ["explain", "3"],
            "plan: must be a plan; what an epsilon means: explain --epsilon 3",
        ),
        (["book", "list"], "No such command 'list'; use privplan book show."),
        (
            ["certificate", "plan.json"],
            "No such command 'certificate'; use privplan so",
        ),
        (["left", "strict"], "No such command 'left'; use privplan book left."),
        (
            ["account", "--batch-size", "5"],
            "No such option '--batch-size'; --sampling-ratio is the batch over the ",
        ),
        (
            ["explain", "--plan", "plan.json"],
            "No such option '--plan'; [PLAN] stands without a dash.",
        ),
        (
            ["calibrate", "--epsilon", "1,000"],
            "Invalid value for '--epsilon': '1,000' is not a valid float; write 1000.",
        ),
        (
            ["init", "spec.yaml"],
            "Got unexpected extra argument (spec.yaml); a file to write is named by -o ",
        ),
        (
            ["solve", "spec.yaml", "rounds=30"],
            "Got unexpected extra argument (rounds=30); a field of the spec is changed ",
        ),
        (
            ["account", "--rounds=5", "--rounds", "6"],
            "--rounds: must stand once; commas separate several values, where it takes "
            "them, found 2 times",
        ),
        (
            ["simulate", "plan.json", "--epochs", "2"],
            "No such option '--epochs'; the spec says how clients train: local.steps, ",
        ),
        (
            ["report", "plan.json", "--against", "b.json"],
            "No such option '--against'; several plans stand side by side: ",
        ),
        (
            ["report", "plan.json", "--plan", "b.json", "-o", "page.html"],
            "plan: is only for a run; plans stand side by side: report a.json b.json",
        ),
        (
            ["reproduce", "gdpfed-plus", "--table", "1"],
            "No such option '--table'; the number is part of the name, as in ",
        ),
        (
            ["account", "--noise-multiplier", "1", "--rounds", "9", "--delta", "1e-5"],
            "sampling_ratio: must be in [1e-30, 1], or sampling full, found None",
        ),
        (
            ["what-if", "spec.yaml", "strict=1,2", "-o", "new.html"],
            "output: must be a folder; --html PAGE writes a page, found 'new.html'",
        ),
        (
            ["init", "--groups", "3"],
            "No such option '--groups'; --interactive asks for groups, clients and ",
        ),
        (["plot", "plan.json"], "No such command 'plot'; use privplan solve SPEC --pl"),
        (
            ["export", "plan.json", "--format", "flower"],
            "No such option '--format'; the framework is named by --to, such as --to ",
        ),
        (
            ["book", "add", "BUNDLE"],
            "run: must be a run folder, such as privplan simulate -o RUN writes, ",
        ),
    ],
)
def test_a_guess_is_led_on(words, line):
    assert refused(*words).startswith(line)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["compare", "--workers", "2"], "No such option '--workers'; write --jobs."),
        (["simulate", "--algo", "a"], "No such option '--algo'; write --algorithm."),
        (["compare", "--slurm"], "No such option '--slurm'; --on slurm:NAME=VALUE,..."),
        (["validate", "spec.yaml"], "No such command 'validate'; use privplan solve S"),
        (["merge", "a", "b"], "No such command 'merge'; use one folder for all, "),
        (
            ["simulate", "--gpus", "2"],
            "No such option '--gpus'; compare --jobs N gives each job a GPU, ",
        ),
        (
            ["simulate", "--workers", "2"],
            "No such option '--workers'; processes share a run under torchrun ",
        ),
        (
            ["book", "add", "run", "--note", "approved"],
            "No such option '--note'; the book keeps no remarks; ",
        ),
        (["compare", "--methods", "all"], "No such option '--methods'; write --algor"),
        (
            ["compare", "--resume"],
            "No such option '--resume'; the same command resumes",
        ),
        (
            ["compare", "a", "b"],
            "Missing option '--algorithms'. Example: privplan comp",
        ),
        (["compare", "--seeds", "1,2"], "Invalid value for '--seeds': '1,2' is not a "),
        (
            ["compare", "--on", "k8s"],
            "on: must begin with one of dask, slurm, such as dask://HOST:PORT (on Kub",
        ),
        (
            ["simulate", "--on", "dask"],
            "No such option '--on'; it is an option of com",
        ),
        (
            ["simulate", "--nproc", "2"],
            "No such option '--nproc'; processes share a run",
        ),
        (["check-data", "--target", "a"], "No such option '--target'; write --label."),
        (["check-data", "--id", "a"], "No such option '--id'; write --client."),
        (["check-data", "--separator", ";"], "No such option '--separator'; the sep"),
        (
            ["check-data", "--standardize"],
            "No such option '--standardize'; --statistics FILE.json says",
        ),
        (
            ["compare", "plan.json", "--algorithms", "FedAvg", "planned"],
            "Got unexpected extra argument (planned); commas without spaces stand ",
        ),
        (
            ["compare", "results"],
            "Missing option '--algorithms'. Example: privplan compare plan.json "
            "--algorithms DP-FedAvg,planned --seeds 3; plans are laid side by side by "
            "privplan report a.json b.json, and the runs of a comparison in FOLDER/resu",
        ),
        (
            ["compare", "--dry-run"],
            "No such option '--dry-run'; privplan solve trains nothing",
        ),
        (
            ["simulate", "--mu", "0.1"],
            "No such option '--mu'; a hyperparameter of a method is set by --set ",
        ),
        (
            ["simulate", "--mlflow"],
            "No such option '--mlflow'; --track: Write metrics for tensorboard, mlflow ",
        ),
        (
            ["simulate", "--seed", "1,2"],
            "Invalid value for '--seed': '1,2' is not a whole number. One seed of the "
            "random numbers; privplan compare runs several.",
        ),
        (
            ["compare", "--on", "dask://127.0.0.1:1", "--jobs", "2"],
            "jobs: must be left out with --on, found 2",
        ),
        (
            ["check-data", "--drop", "a"],
            "No such option '--drop'; --features A,B names",
        ),
        (
            ["simulate", "plan.json", "--dataset", "patients.csv"],
            "dataset: must be a registered name; --data reads records of your own, ",
        ),
    ],
)
def test_a_guess_on_runs_is_led_on(words, line):
    pytest.importorskip("torch")
    assert refused(*words).startswith(line)


@pytest.mark.parametrize(
    ("guess", "line"),
    [
        (
            "simulate.Hyperparameter",
            "from simulate.algorithms.registry import Hyperpar",
        ),
        ("simulate.register", "from simulate.algorithms.registry import register"),
        ("simulate.train('p', dataset='digits', epsilon=3)", "groups.GROUP.epsilon"),
        ("simulate.train('p', data='a', label='b')", "data=simulate.Data.load(path, "),
        ("simulate.train('p', data='a', target='b')", "data=simulate.Data.load(path, "),
        ("simulate.Data([], label='b')", "write simulate.Data.load(path, "),
        ("simulate.Algorithm", "as docs/reference/own-method.md shows"),
        ("object.__new__(simulate.TrainedRun).history", "write run.metrics"),
        ("PLAN.plot(ax=None)", "ax: is not an argument; it takes nothing"),
        ("PLAN.certificate.get_epsilon(1e-5)", "write .epsilon"),
        ("PLAN.to_frame()['q']", "did you mean "),
        ("privplan.History(1.1, 0.01, 100)", "it takes counts"),
        ("privplan.PRVAccountant", "write privplan.account(noise_multiplier=1.5, "),
        ("simulate.compare('p', ['planned'], n_seeds=2)", "write seeds"),
        ("simulate.compare('p', ['planned'], executor=2)", "write jobs"),
        ("simulate.compare(PLAN, ['planned'], epsilon=2)", "groups.GROUP.epsilon"),
        ("simulate.Comparison()['planned']", "algorithm: must be one of "),
        (
            "simulate.train('p', seed=[1, 2])",
            "; each of several takes a call of its own",
        ),
        ("simulate.train('p', data='a.csv')", "simulate.Data.load(path, label=...)"),
        (
            "simulate.train('p', mu=0.5)",
            'write hyperparameters={"NAME": NUMBER}, found 0.5',
        ),
        (
            "importlib.import_module('simulate.algorithms.registry')"
            ".Hyperparameter(0.1, 0, 10)",
            "hyperparameter.meaning: must be text, found 0",
        ),
        ("Guard(PLAN, FOLDER / 'run').epsilon()", "'group'; it takes group"),
        ("simulate.Data(Table())", "write simulate.Data.from_table(table, label=...)"),
        ("simulate.compare('p', ['planned'], output='b')", "write folder"),
        ("simulate.compare('p', ['planned'], workers=2)", "write jobs"),
        ("object.__new__(simulate.TrainedRun).verify", "; write .verdict"),
        ("object.__new__(simulate.TrainedRun).summary()", "; write print(run), "),
        (
            "object.__new__(simulate.TrainedRun).model.state_dict()",
            "write .model().state_dict",
        ),
        (
            "object.__new__(simulate.TrainedRun).model(1)",
            "TrainedRun.model: ",
        ),
        (
            "object.__new__(privplan.Verdict).summary()",
            "write print(verdict), or .checks",
        ),
        ("PLAN.certificate.explain()", "write print(...) of it"),
        ("privplan.judge(PLAN)", "must be a run, or its folder"),
        (
            "privplan.certify(PLAN)",
            'write privplan.certify(plan.history("strict"), group="strict", ',
        ),
        (
            "privplan.certify(PLAN, group='a', delta=1e-5, relation='add_remove')",
            "history: must be a History such as plan.history(GROUP); ",
        ),
        ("privplan.SamplingLaw('Poisson')", "(did you mean poisson?)"),
        (
            "privplan.SamplingLaw('min_separation:0')",
            "sampling: must be 'min_separation:",
        ),
        (
            "privplan.Relation('replace-one')",
            "add_remove, replace_one, zero_out (did you mean replace_one?), found ",
        ),
        ("simulate.algorithms()", "registry.ALGORITHMS.names() in Python"),
        ("simulate.compare(PLAN, ['planned'], tune=True)", "--tune in the shell"),
        (
            "privplan.what_if(PLAN, {'lr': [0.1]})",
            "must be written in full: local.learning_rate, found 'lr'",
        ),
        (
            "simulate.compare(PLAN, ['planned', 'planned'])",
            "algorithms: must differ from each other, found ['planned', 'planned']",
        ),
        (
            "simulate.compare(PLAN, ['planned'], on='dask://h:1')",
            "compare --on ADDRESS",
        ),
    ],
)
def test_a_guess_in_python_is_led_on(guess, line, folder):
    simulate = pytest.importorskip("simulate")
    plan = Plan.load(folder / "plan.json")
    table = type("Table", (), {"iloc": ()})
    names = {"privplan": privplan_package, "simulate": simulate}
    names |= {"PLAN": plan, "Table": table, "Guard": Guard, "importlib": importlib}
    names["FOLDER"] = folder
    # ``simulate.algorithms`` is there once a run imported it.
    importlib.import_module("simulate.algorithms")
    errors = (AttributeError, KeyError, ValueError, PrivplanError)
    with pytest.raises(errors) as caught:
        eval(guess, names)
    assert line in str(caught.value)


def test_a_certificate_is_read_as_a_number():
    numbers = {"rounds": 50, "delta": 1e-5, "sampling_ratio": 0.02}
    certificate = privplan_package.account(noise_multiplier=1.5, **numbers)
    assert float(certificate) == certificate.epsilon > 0


def test_numbers_in_single_precision_cause_no_warning(recwarn):
    numbers = {"rounds": np.int64(50), "delta": 1e-5, "sampling_ratio": 0.02}
    single = privplan_package.account(noise_multiplier=np.float32(1.5), **numbers)
    assert single == privplan_package.account(noise_multiplier=1.5, **numbers)
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.parametrize(
    ("words", "warned"),
    [
        (["--delta", "0.01"], "delta 0.01 is large: for 100 clients or more a "),
        (["--delta", "0.009"], None),
        (["--delta", "0.009", "--clients", "200"], "delta 0.009 is not below 1/client"),
        (["--delta", "0.04", "--clients", "20"], None),
    ],
)
def test_a_delta_that_publishing_a_client_would_keep_is_said_to_be_one(
    words, warned, tmp_path
):
    equal = ["--noise-multiplier", "1.5", "--sampling-ratio", "0.1", "--rounds", "3"]
    script = tmp_path / "train.py"
    script.write_text("from opacus import PrivacyEngine\n")
    of_lint = [word.replace("--clients", "--population") for word in words]
    for done in (
        privplan("account", *equal, *words),
        privplan("lint", script, "--of", "opacus", *of_lint),
    ):
        assert done.exit_code == 0, done.output
        if warned is None:
            assert "a mechanism that publishes" not in done.stderr
        else:
            # A script may protect records or clients.
            assert f"warning: {warned}" in done.stderr.replace("unit", "client")


def test_a_run_is_judged_by_its_folder(tmp_path):
    simulate = pytest.importorskip("simulate")
    plan = privplan_package.solve(
        privplan_package.preset("digits-planned").replace(rounds=1)
    )
    simulate.train(plan, dataset="digits", folder=tmp_path / "run")
    verdict = privplan_package.judge(tmp_path / "run", rounds=0)
    assert verdict == privplan_package.verify(tmp_path / "run", rounds=0)
    assert verdict.rounds == 1


def test_a_row_of_a_comparison_is_named_by_its_algorithm():
    training = pytest.importorskip("simulate.training")
    rows = [SimpleNamespace(algorithm=name) for name in ("planned", "FedAvg")]
    comparison = training.Comparison(rows)
    assert comparison["FedAvg"] is comparison[1] is rows[1]
    assert list(comparison[:1]) == rows[:1]


def test_a_method_that_differs_by_a_hyphen_is_named():
    registry = pytest.importorskip("simulate.algorithms.registry")
    compare = pytest.importorskip("simulate.runs.compare")
    assert "DPFedAvg" in registry.ALGORITHMS.names()
    names, lines = compare.select("DPFedAvg,DP-FedAvg", None)
    assert names == ["DPFedAvg", "DP-FedAvg"]
    assert lines == []
    assert compare.select("dpfedavg", None)[1] == [
        "DPFedAvg protects each record; DP-FedAvg is another method"
    ]


def test_a_field_of_another_part_is_placed(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(preset("digits-planned") + "\nepochs: 3\n")
    assert refused("solve", path).startswith(
        "epochs: is not a known field; write local.epochs, found 3"
    )


def test_a_simulation_is_booked_with_a_word_on_whom_it_protected(folder, tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "spec.yaml"
    path.write_text(preset("digits-planned").replace("rounds: 60", "rounds: 1"))
    answer("solve", path, "-o", tmp_path / "plan.json")
    words = ["--algorithm", "planned", "-o", tmp_path / "run"]
    answer("simulate", tmp_path / "plan.json", *words)
    book = tmp_path / "book.sqlite"
    done = privplan("book", "add", tmp_path / "run", "--address", book)
    assert "is a simulation on the public data digits: it protected" in done.stderr
    line = refused("report", tmp_path / "plan.json", book)
    assert line.startswith(
        "report: must be plan files, where several are named; a run,"
    )


def test_a_guess_on_columns_is_led_on(tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "table.csv"
    path.write_text("ward,ill,age\nnorth,0,1.5\nsouth,1,2.5\n")
    words = ["check-data", path, "--label", "ill", "--statistics", "none"]
    assert "(--client and --group name their columns, --features" in refused(*words)
    assert "(did you mean age?)" in refused(*words, "--features", "Age")
    faults = privplan("check-data", path, "--label", "il", "--client", "wards").stderr
    for fault in (
        "client: must be one of the columns ward, ill, age (did you mean ward?)",
        "label: must be one of the columns ward, ill, age (did you mean ill?)",
        "statistics: must be given for a table",
    ):
        assert fault in faults
    line = refused(*words, "--groups", "strict")
    assert line.startswith("groups: must be FILE.csv with the columns client and group")


def test_rounds_are_no_option_of_a_run(folder):
    pytest.importorskip("torch")
    line = refused("simulate", folder / "plan.json", "--rounds", "3")
    assert line.startswith("No such option '--rounds': rounds is a field of the spec")


@pytest.mark.parametrize("command", [["book", "add"], ["publish", "-o", "new"]])
def test_a_bundle_is_said_to_be_one(command, tmp_path):
    for name in ("plan.json", "certificate.json", "verdict.json"):
        (tmp_path / name).write_text("{}")
    line = refused(*command, tmp_path)
    rule = "must be the run folder of which this bundle was published"
    assert line == f"run: {rule}, found '{tmp_path}'"


def test_a_name_that_a_package_lacks_is_led_on_where_it_is_imported():
    with pytest.raises(ImportError, match=r"write privplan\.account\("):
        exec("from privplan import RDPAccountant")


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (
            ("epsilon: 2.0", "epsilon: 2,0"),
            ["groups.strict.0: is no name of a field; a decimal has a point"],
        ),
        (
            ("epsilon: 2.0", "epsilon: '2,0'"),
            ["groups.strict.epsilon: must be a number; write 2.0, found '2,0'"],
        ),
    ],
)
def test_a_comma_in_a_decimal_is_explained(change, lines, tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(preset("digits-planned").replace(*change))
    done = privplan("solve", path)
    assert done.exit_code == 2
    for line in lines:
        assert line in done.stderr


def test_the_comment_of_a_new_spec_names_its_file(tmp_path):
    path = tmp_path / "mine.yaml"
    answer("init", "-o", path)
    assert f"privplan solve {path} -o plan.json" in path.read_text()


def test_without_an_installation_every_command_says_so(monkeypatch, tmp_path):
    def nothing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("privplan.distribution.version", nothing)
    monkeypatch.setattr("privplan.registry.points", lambda group: ())
    rule = "the package must be installed, not only be on PYTHONPATH"
    for words in (["--version"], ["simulate", "plan.json"], ["doctor"]):
        assert refused(*words).startswith(rule)


@pytest.mark.slow
def test_an_own_name_replaces_only_itself(tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "mine.py"
    script.write_text(
        "from privplan.errors import InputError\n"
        "from simulate.server import SERVER_OPTIMISERS\n"
        "for name in ('mine', 'mine', 'yogi'):\n"
        "    try:\n"
        "        SERVER_OPTIMISERS.register(name, lambda server: None)\n"
        "    except InputError as error:\n"
        "        print(error)\n"
    )
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment
    )
    assert done.stdout.count("\n") == 1, done.stderr
    assert "must be another name; it is taken by simulate.server, found 'yogi'" in (
        done.stdout
    )


def test_columns_that_look_like_codes_are_named(tmp_path):
    pytest.importorskip("torch")
    rows = [f"{row % 6},{'ab'[row % 2]},{row / 7},{row % 5}" for row in range(60)]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["patient,ill,age,job", *rows]))
    words = ["check-data", path, "--label", "ill", "--client", "patient"]
    words += ["--statistics", "none"]
    assert "inputs 2 (from 1): whole numbers from 0" in answer(*words)
    assert "inputs 2 (from 1)" not in answer(*words, "--codes", "job")


def test_a_group_that_is_none_is_answered_with_those_that_are(folder):
    line = refused("what-if", folder / "plan.json", "patients=1,2")
    assert line == (
        "vary: must be a field of the spec or one of its groups (strict, medium, loose), "
        "found 'patients'"
    )


def test_a_package_that_is_named_like_a_command_names_it():
    importlib.import_module("privplan.report")
    with pytest.raises(AttributeError, match="command line: privplan report --help"):
        privplan_package.report("run", "r.html")
