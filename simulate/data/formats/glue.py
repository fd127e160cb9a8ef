"""Four tasks of GLUE: sentences, or pairs of them, with a label.

Source: A. Wang et al., GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language
Understanding (2019). Read from a local copy in the format of the library ``datasets``,
``GLUE/sst2`` and so on, with the tokenizer in ``GLUE/tokenizer/tokenizer.json``. The labels of the
published test records are secret, so testing is on the validation records, as is customary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError, MissingDataError
from simulate.data import registry as hub
from simulate.data.dataset import Dataset
from simulate.data.registry import DATASETS, Location, find, missing, reading, whole_numbers

LENGTH = 128
"""Tokens of a record; longer texts are cut, shorter ones padded."""
REPOSITORY = "nyu-mll/glue"
TOKENIZER, TOKENIZER_FILE = "FacebookAI/roberta-base", "tokenizer.json"
PADDING = ("<pad>", "[PAD]")
"""Names of the padding token in the usual vocabularies."""
REMEDY = (
    f"save a copy there with save_to_disk of the library datasets, or fetch {REPOSITORY} and "
    f"{TOKENIZER} with --download"
)


@dataclass(frozen=True)
class GlueTask:
    """A task of GLUE."""

    name: str  # also its configuration in the repository
    columns: tuple[str, ...]  # of its sentences

    def __call__(self, data: Path, download: bool) -> Dataset:
        """Read the task; records are token ids [n, 128], padded at the end."""
        title = f"GLUE's {self.name}"
        location = Location(title, (f"GLUE/{self.name}", f"glue/{self.name}"), REMEDY)
        beside = Location(title, ("GLUE/tokenizer", "glue/tokenizer"), REMEDY)
        folder = hub.find_copy(location, data)
        if folder is None and download:
            folder = data / location.folders[0]
            hub.fetch_from_hub(self.name, REPOSITORY, self.name, folder)
        if folder is None:
            raise missing(location, data, hub.SAVED[0])
        path = find(beside, data, TOKENIZER_FILE)
        if path is None and not download:
            raise missing(beside, data, TOKENIZER_FILE)
        tokenizer = _tokenizer(self.name, path, data / beside.folders[0] / TOKENIZER_FILE)
        splits = hub.splits(self.name, folder)
        absent = [part for part in ("train", "validation") if part not in splits]
        if absent:
            raise InputError.one("data", f"must have the split {absent[0]}", str(folder))
        train, test = (
            self._encoded(splits[part], tokenizer, folder) for part in ("train", "validation")
        )
        classes = getattr(splits["train"].features["label"], "names", ("0", "1"))
        return Dataset(self.name, *train, *test, classes=tuple(classes), kind="tokens")

    def _encoded(self, split: Any, tokenizer: Any, folder: Path) -> tuple[Tensor, Tensor]:
        """Token ids [n, 128], int32, and labels [n], int64, of a split."""
        *texts, labels = hub.columns(split, (*self.columns, "label"), folder)
        rows: Sequence[Any] = texts[0] if len(texts) == 1 else list(zip(*texts, strict=True))
        with reading(folder, "must hold texts and labels"):
            x = np.array([one.ids for one in tokenizer.encode_batch(rows)], np.int32)
            return torch.from_numpy(x.reshape(-1, LENGTH)), torch.from_numpy(whole_numbers(labels))


def _tokenizer(task: str, path: Path | None, target: Path) -> Any:
    """The tokenizer of a file, set to the length of records; downloaded when ``path`` is None."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        needed = "the extra hub, pip install 'privplan[hub]'"
        raise MissingDataError(f"dataset: {task} needs {needed}") from None
    with reading(path or target, "must be a tokenizer"):
        if path is None:
            target.parent.mkdir(parents=True, exist_ok=True)
            Tokenizer.from_pretrained(TOKENIZER).save(str(target))
        tokenizer = Tokenizer.from_file(str(path or target))
    padding = [name for name in PADDING if tokenizer.token_to_id(name) is not None]
    if not padding:
        rule = f"must know one of the tokens {', '.join(PADDING)}"
        raise InputError.one("data", rule, str(path or target))
    token, number = padding[0], tokenizer.token_to_id(padding[0])
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(length=LENGTH, pad_token=token, pad_id=number)
    return tokenizer


for _task in (
    GlueTask("sst2", ("sentence",)),
    GlueTask("qqp", ("question1", "question2")),
    GlueTask("mrpc", ("sentence1", "sentence2")),
    GlueTask("qnli", ("question", "sentence")),
):
    DATASETS.register(_task.name, _task)
