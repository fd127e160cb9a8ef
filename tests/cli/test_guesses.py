"""Guesses about files, labels and formats that the command line answers in a line."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from privplan.cli import main

CLIENTS = {"strict": 100, "medium": 100, "loose": 100}
NAMED = ["--label", "y", "--client", "c", "--group", "g", "--statistics"]


def privplan(*words):
    return CliRunner().invoke(main, list(map(str, words)))


def table(labels):
    """A number, its client and group, and each of some labels for each client."""
    generator = np.random.default_rng(1)
    groups = np.repeat([*CLIENTS], [*CLIENTS.values()])
    lines = ["a,c,g,y"]
    for client, group in enumerate(groups):
        lines += [f"{generator.normal():.3f},{client},{group},{y}" for y in labels]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guesses")
    assert (
        privplan(
            "init", "--preset", "digits-planned", "-o", folder / "s.yaml"
        ).exit_code
        == 0
    )
    spec = (folder / "s.yaml").read_text()
    spec = spec.replace(
        "name: mlp-digits, parameters: 2410", "name: own, parameters: 4"
    )
    (folder / "spec.yaml").write_text(spec.replace("rounds: 60", "rounds: 1"))
    solved = privplan("solve", folder / "spec.yaml", "-o", folder / "plan.json")
    assert solved.exit_code == 0
    net = "import torch\n\n\ndef net():\n    return torch.nn.Linear(1, 2)\n"
    (folder / "net.py").write_text(net)
    (folder / "numbers.csv").write_text(table(["1", "2"]))
    (folder / "words.csv").write_text(table(["no", "yes"]))
    german = table(["0", "1"]).replace(",", ";").replace(".", ",")
    (folder / "german.csv").write_text(german)
    described = {
        "a": {"count": 600, "mean": 0.0, "std": 1.0, "min": -3, "25%": -1, "max": 3}
    }
    (folder / "described.json").write_text(json.dumps(described))
    described["a"]["variance"] = 1.0
    (folder / "other.json").write_text(json.dumps(described))
    return folder


def test_a_format_of_models_is_none_of_plans(folder):
    done = privplan("export", "run", "--to", "ONNX")
    assert done.exit_code == 2
    assert "privplan publish RUN -o BUNDLE writes a run's model" in done.output
    assert "torch.onnx.export" in done.output


def test_a_missing_book_is_said_to_be_missing(folder):
    done = privplan("report", folder / "missing.sqlite", "--budget", "strict=2")
    assert done.exit_code == 2
    assert "report: must exist, found" in done.output


def test_statistics_of_describe_are_read(folder):
    pytest.importorskip("simulate")
    done = privplan(
        "check-data", folder / "numbers.csv", *NAMED, folder / "described.json"
    )
    assert done.exit_code == 0, done.output
    done = privplan("check-data", folder / "numbers.csv", *NAMED, folder / "other.json")
    assert done.exit_code == 2
    assert "; not variance, found" in done.output


def test_labels_that_need_names_are_said_to_need_them(folder, monkeypatch):
    pytest.importorskip("simulate")
    done = privplan("check-data", folder / "words.csv", *NAMED, "none")
    assert "needs --classes no,yes, as labels are words" in done.output
    monkeypatch.chdir(folder)
    words = ["simulate", "plan.json", "--algorithm", "FedAvg", "--data", "numbers.csv"]
    words += [*NAMED, "none", "--model", "net:net", "-o", "run"]
    done = privplan(*words)
    assert done.exit_code == 2
    assert "nobody has the class 0: --classes 1,2 (classes=[1, 2])" in done.stderr
    assert "must return logits of shape (3, 3)" in done.stderr
    # What is written instead works, and says that nobody is protected.
    done = privplan(*words, "--classes", "1,2")
    assert done.exit_code == 0, done.output
    assert ", unit none)" in done.output
    assert "add_remove" not in done.stdout


def test_decimals_with_a_comma_are_said_to_have_one(folder):
    pytest.importorskip("simulate")
    done = privplan("check-data", folder / "german.csv", *NAMED, "none")
    assert done.exit_code == 2
    assert "decimals have a point and no comma" in done.output
    assert "decimal=','" in done.output


@pytest.mark.parametrize(
    "words",
    [
        "simulate plan.json --algorithm planned -o run.json",
        "compare plan.json --algorithms planned -o runs.CSV",
        "export plan.json --to flower -o server.py",
        "publish run -o model.pt",
        "attack plan.json --algorithm FedAvg -o scores.csv",
        "what-if spec.yaml rounds=1,2 -o grid.csv",
    ],
)
def test_a_folder_is_not_named_as_a_file(words, folder, monkeypatch):
    pytest.importorskip("simulate")
    monkeypatch.chdir(folder)
    before = {path.name for path in folder.iterdir()}
    done = privplan(*words.split())
    assert done.exit_code == 2
    assert "output: must be a folder" in done.output
    assert {path.name for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("what-if spec.yaml --set epsilon=1", "as in groups.strict.epsilon=1,2"),
        ("verify run --strict", "the exit code is 0 only of a run that is kept"),
        ("what-if spec.yaml --group strict", "dashes: strict=1,2 for a group"),
        ("what-if spec.yaml --clients 5", "dashes: strict.clients=1,2 for a"),
        ("what-if spec.yaml group=1,2", "such as strict=1,2 (groups: strict, m"),
        ("what-if spec.yaml groups=1,2", "such as strict=1,2 (groups: strict, m"),
        ("simulate plan.json --seeds 1,2", "; privplan compare PLAN --algorithms "),
    ],
)
def test_options_of_other_tools_are_answered(words, line, folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert line in privplan(*words.split()).output


def test_one_logit_of_two_classes_is_said_to_be_for_binary(folder, monkeypatch):
    pytest.importorskip("simulate")
    monkeypatch.chdir(folder)
    one_logit = "import torch\n\n\ndef net():\n    return torch.nn.Linear(1, 1)\n"
    (folder / "one_logit.py").write_text(one_logit)
    (folder / "pairs.csv").write_text(table(["0", "1"]))
    words = ["check-data", "pairs.csv", *NAMED, "none", "--model", "one_logit:net"]
    assert "one logit is for --task binary" in privplan(*words).stderr
    assert privplan(*words, "--task", "binary").exit_code == 0
