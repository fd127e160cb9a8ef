"""Local copies in the format of the library ``datasets``, and a transformer trained on one."""

import pytest
import torch

from privplan.errors import MissingDataError
from simulate.data.formats.glue import LENGTH
from simulate.data.registry import DATASETS, load

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


transformers = pytest.importorskip("transformers")
