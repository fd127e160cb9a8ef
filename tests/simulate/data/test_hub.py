"""Local copies in the format of the library ``datasets``, and a transformer trained on one."""

import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from privplan.cli import main
from privplan.errors import MissingDataError
from simulate.data.formats.glue import LENGTH
from simulate.data.formats.images import CHARACTERS
from simulate.data.registry import DATASETS, load
from simulate.models.registry import model

datasets = pytest.importorskip("datasets")
tokenizers = pytest.importorskip("tokenizers")

WORDS = {"<pad>": 0, "<unk>": 1, "good": 2, "bad": 3, "film": 4, "?": 5}


@pytest.fixture(autouse=True)
def _offline(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "library")


def tokenizer(root, name="GLUE"):
    """A tokenizer of six words, as the library saves it."""
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    folder = root / name / "tokenizer"
    folder.mkdir(parents=True)
    made.save(str(folder / "tokenizer.json"))


def task_copy(task):
    """Three records for training and two for validation; the test labels are secret."""
    names = DATASETS.get(task).columns
    label = datasets.ClassLabel(names=["no", "yes"])
    features = datasets.Features({name: datasets.Value("string") for name in names})
    features["label"] = label
    parts = {"train": [1, 0, 1], "validation": [0, 1], "test": [-1]}
    made = {}
    for part, labels in parts.items():
        texts = {names[0]: ["good film", "bad  film ?", "what " * 300][: len(labels)]}
        if len(names) > 1:
            texts[names[1]] = ["bad", "film", "good"][: len(labels)]
        made[part] = datasets.Dataset.from_dict({**texts, "label": labels}, features=features)
    return datasets.DatasetDict(made)


@pytest.mark.parametrize("task", ["sst2", "qqp", "mrpc", "qnli"])
def test_a_task_of_glue_from_a_saved_copy(task, tmp_path):
    tokenizer(tmp_path)
    task_copy(task).save_to_disk(str(tmp_path / "GLUE" / task))
    data = load(task, tmp_path)
    assert data.classes == ("no", "yes")
    assert data.train_x.shape == (3, LENGTH)
    assert data.train_y.tolist() == [1, 0, 1]
    assert data.test_y.tolist() == [0, 1]
    pair = len(DATASETS.get(task).columns) > 1
    first = [2, 4, 3] if pair else [2, 4]
    assert data.train_x[0].tolist() == first + [0] * (LENGTH - len(first))
    assert 0 not in data.train_x[2].tolist()  # cut
    assert data.inputs(data.train_x).dtype == torch.int64


def test_a_task_is_fetched_once_and_kept(tmp_path, monkeypatch):
    asked = []

    def answer(repository, configuration):
        asked.append((repository, configuration))
        return task_copy("sst2")

    tokenizer(tmp_path)
    monkeypatch.setattr(datasets, "load_dataset", answer)
    first = load("sst2", tmp_path, download=True)
    assert load("sst2", tmp_path, download=True).digest == first.digest
    assert asked == [("nyu-mll/glue", "sst2")]
    assert sorted(path.name for path in (tmp_path / "GLUE").iterdir()) == ["sst2", "tokenizer"]

    def refuse(repository, configuration):
        raise ConnectionError("no\nroute")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(MissingDataError, match=r"could not fetch nyu-mll/glue \(no route\)"):
        load("qnli", tmp_path, download=True)


def test_femnist_from_a_saved_copy(tmp_path):
    images = [Image.fromarray(np.full((28, 28), 10 * row, np.uint8)) for row in range(22)]
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "writer_id": datasets.Value("string"),
            "character": datasets.ClassLabel(names=list(CHARACTERS)),
        }
    )
    rows = {
        "image": images,
        "writer_id": ["b" if row % 2 else "a" for row in range(22)],
        "character": list(range(22)),
    }
    made = datasets.Dataset.from_dict(rows, features=features)
    made.save_to_disk(str(tmp_path / "femnist"))
    data = load("femnist", tmp_path)
    assert np.bincount(data.train_people).tolist() == [10, 10]
    assert data.test_y.tolist() == [18, 19]  # the tenth of each writer
    assert data.test_x[:, 0, 0, 0].tolist() == [180, 190]


transformers = pytest.importorskip("transformers")

SPEC = """
name: sentences
groups:
  - {{name: strict, clients: 6, epsilon: 4.0}}
  - {{name: loose, clients: 6, epsilon: 16.0}}
delta: 0.01
rounds: 3
cohort: 6
sampling: poisson
relation: add_remove
clipping_norm: 1.0
local: {{steps: 6, batch_size: 8, learning_rate: 0.1}}
model: {{name: "roberta:{folder}", parameters: {parameters}}}
planning: {{}}
"""


@pytest.fixture
def sentences(tmp_path):
    """Opinions of films in six words, a transformer of two blocks, and a spec that names it."""
    tokenizer(tmp_path)
    parts = {}
    for part, count in {"train": 240, "validation": 60}.items():
        label = np.random.default_rng(count).integers(2, size=count)
        text = [("bad", "good")[value] + " film" * (1 + row % 3) for row, value in enumerate(label)]
        parts[part] = datasets.Dataset.from_dict({"sentence": text, "label": label.tolist()})
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "GLUE" / "sst2"))
    folder = tmp_path / "weights"
    config = transformers.RobertaConfig(
        vocab_size=len(WORDS), max_position_embeddings=130, num_labels=2,
        pad_token_id=WORDS["<pad>"], hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=24, initializer_range=0.2,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        transformers.RobertaForSequenceClassification(config).save_pretrained(folder)
    path = tmp_path / "spec.yaml"
    found = model(f"roberta:{folder}").parameters
    path.write_text(SPEC.format(folder=folder, parameters=found))
    return path


@pytest.mark.parametrize(
    "algorithm",
    ["planned", *(pytest.param(one, marks=pytest.mark.slow) for one in ("FedAvg", "HyperFL-LPM"))],
)
def test_it_trains_and_is_judged(algorithm, sentences, tmp_path):
    plan, run = tmp_path / "plan.json", tmp_path / "run"
    asked = ["--algorithm", algorithm, "--dataset", "sst2", "--data-dir", str(tmp_path)]
    for words in (
        ["solve", str(sentences), "-o", str(plan)],
        ["simulate", str(plan), *asked, "-o", str(run)],
    ):
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
    record = json.loads((run / "record.json").read_text())
    assert record["accuracy"] > (0.9 if algorithm == "FedAvg" else 0.4)
    judged = CliRunner().invoke(main, ["verify", "--rounds=0", "--details", str(run)])
    assert judged.exit_code == (0 if algorithm == "planned" else 4), judged.output
