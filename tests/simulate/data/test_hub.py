"""Local copies in the format of the library ``datasets``, made here."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from privplan.errors import InputError, MissingDataError
from simulate.data import registry as hub
from simulate.data.formats.glue import LENGTH
from simulate.data.formats.images import CHARACTERS
from simulate.data.registry import DATASETS, load
from tests.simulate.data.test_leaf import roles, text_of, windows_of

datasets = pytest.importorskip("datasets")
tokenizers = pytest.importorskip("tokenizers")

WORDS = {"<pad>": 0, "<unk>": 1, "good": 2, "bad": 3, "film": 4, "?": 5}


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "library")


def tokenizer(root: Path, name: str = "GLUE") -> None:
    """A tokenizer of six words, as the library saves it."""
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    folder = root / name / "tokenizer"
    folder.mkdir(parents=True)
    made.save(str(folder / "tokenizer.json"))


def task_copy(task: str) -> Any:
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
def test_a_task_of_glue_from_a_saved_copy(task: str, tmp_path: Path) -> None:
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


def test_a_task_of_glue_from_parquet(tmp_path: Path) -> None:
    tokenizer(tmp_path, "glue")
    folder = tmp_path / "glue" / "sst2"
    folder.mkdir(parents=True)
    for part, split in task_copy("sst2").items():
        split.to_parquet(str(folder / f"{part}-00000-of-00001.parquet"))
    assert load("sst2", tmp_path).train_y.tolist() == [1, 0, 1]


def test_what_is_missing_or_damaged_is_one_line(tmp_path: Path) -> None:
    copy, path = tmp_path / "GLUE" / "sst2", tmp_path / "GLUE" / "tokenizer" / "tokenizer.json"
    task_copy("sst2").save_to_disk(str(copy))
    with pytest.raises(MissingDataError, match=r"tokenizer\.json is missing.*--download"):
        load("sst2", tmp_path)
    tokenizer(tmp_path)
    whole = path.read_text()
    for content, said in (
        ("{}", "data: must be a tokenizer"),
        (whole.replace("<pad>", "<gap>"), "must know one of the tokens <pad>"),
    ):
        path.write_text(content)
        with pytest.raises(InputError, match=said):
            load("sst2", tmp_path)
    path.write_text(whole)
    task_copy("mrpc").save_to_disk(str(tmp_path / "GLUE" / "qqp"))
    with pytest.raises(InputError, match="must have the columns question1, question2, label"):
        load("qqp", tmp_path)
    for state in copy.rglob("state.json"):
        state.write_text("{")
    with pytest.raises(InputError, match="must be readable by the library datasets") as caught:
        load("sst2", tmp_path)
    assert "\n" not in str(caught.value)


def test_a_task_is_fetched_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answer(repository: str, configuration: str) -> Any:
        asked.append((repository, configuration))
        return task_copy("sst2")

    tokenizer(tmp_path)
    monkeypatch.setattr(datasets, "load_dataset", answer)
    first = load("sst2", tmp_path, download=True)
    assert load("sst2", tmp_path, download=True).digest == first.digest
    assert asked == [("nyu-mll/glue", "sst2")]
    assert sorted(path.name for path in (tmp_path / "GLUE").iterdir()) == ["sst2", "tokenizer"]

    def refuse(repository: str, configuration: str) -> Any:
        raise ConnectionError("no\nroute")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(MissingDataError, match=r"could not fetch nyu-mll/glue \(no route\)"):
        load("qnli", tmp_path, download=True)


def test_femnist_from_a_saved_copy(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("image", "character"), [(b"no image", 1.0), (None, 1.0), ("whole", 1.5), ("whole", None)]
)
def test_a_damaged_copy_of_femnist_is_one_line(
    image: bytes | str | None, character: float | None, tmp_path: Path
) -> None:
    content = io.BytesIO()
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(content, "png")
    held = content.getvalue() if image == "whole" else image
    drawn = None if held is None else {"bytes": held, "path": None}
    rows = {"image": [drawn], "writer_id": ["a"], "character": [character]}
    made = datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())
    made.save_to_disk(str(tmp_path / "femnist"))
    with pytest.raises(InputError, match=r"data: must .*, found '.*femnist'") as caught:
        load("femnist", tmp_path)
    assert "\n" not in str(caught.value)


def test_labels_of_glue_are_whole_numbers(tmp_path: Path) -> None:
    tokenizer(tmp_path)
    rows = {"sentence": ["good", "bad"], "label": [0.5, 1.0]}
    split = datasets.Dataset.from_dict(rows)
    copy = datasets.DatasetDict({"train": split, "validation": split})
    copy.save_to_disk(str(tmp_path / "GLUE" / "sst2"))
    with pytest.raises(InputError, match=r"must hold texts and labels \(labels must be a list"):
        load("sst2", tmp_path)


def test_shakespeare_from_a_saved_copy(tmp_path: Path) -> None:
    said = roles()
    x, y = windows_of(said["PLAY_LONG"])
    rows = {"character_id": [7] * len(x), "x": x, "y": y}
    made = datasets.Dataset.from_dict(rows)
    made.save_to_disk(str(tmp_path / "shakespeare"))
    data = load("shakespeare", tmp_path)
    assert len(data.train_y) == 900
    assert text_of(data.test_x[0]) == said["PLAY_LONG"][979:1059]
    short = datasets.Dataset.from_dict({**rows, "x": [text[1:] for text in x]})
    short.save_to_disk(str(tmp_path / "other" / "shakespeare"))
    with pytest.raises(InputError, match=r"must hold shakespeare \(x must have 80 characters"):
        load("shakespeare", tmp_path / "other")


def test_the_library_is_not_imported_unless_used() -> None:
    load = "import sys; from simulate.data import registry; registry.load('digits')"
    code = load + "; print('datasets' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_without_the_library_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    (tmp_path / "GLUE" / "sst2").mkdir(parents=True)
    (tmp_path / "GLUE" / "sst2" / hub.SAVED[0]).write_text("{}")
    tokenizer(tmp_path)
    with pytest.raises(MissingDataError, match=r"the extra hub, pip install 'privplan\[hub\]"):
        load("sst2", tmp_path)
