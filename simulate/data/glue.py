"""Four tasks of GLUE: sentences, or pairs of them, with a label.

Source: A. Wang et al., GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language
Understanding (2019). Read from a local copy in the format of the library ``datasets``,
``GLUE/sst2`` and so on, with the tokenizer in ``GLUE/tokenizer/tokenizer.json``. The labels of the
published test records are secret, so testing is on the validation records, as is customary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError, MissingDataError
from simulate.data import hub
from simulate.data.dataset import Dataset
from simulate.data.disk import Place, find, missing, root
from simulate.data.files import reading, whole_numbers

COLUMNS = MappingProxyType(
    {
        "sst2": ("sentence",),
        "qqp": ("question1", "question2"),
        "mrpc": ("sentence1", "sentence2"),
        "qnli": ("question", "sentence"),
    }
)
"""The texts of each task."""
LENGTH = 128
"""Tokens of a record; longer texts are cut, shorter ones padded."""
REPOSITORY = "nyu-mll/glue"
TOKENIZER, TOKENIZER_FILE = "FacebookAI/roberta-base", "tokenizer.json"
PADDING = ("<pad>", "[PAD]")
"""How the usual vocabularies name the token that fills up a record."""


def glue(task: str, data_dir: Path | None = None, download: bool = False) -> Dataset:
    """A task from disk; records are token ids, [n, 128], the last of a short one the padding's.

    Args:
        task: a name of the table of columns.
        data_dir: folder that holds ``GLUE``; PRIVPLAN_DATA when None, then the user's cache.
        download: fetch what is missing into that folder, through the library.

    Raises:
        MissingDataError: when the copy, the tokenizer or the library is not there.
        InputError: when one of them is damaged.
    """
    data = root(data_dir)
    place = Place(
        f"GLUE's {task}",
        (f"GLUE/{task}", f"glue/{task}"),
        f"save a copy there with save_to_disk of the library datasets, or fetch {REPOSITORY} and "
        f"{TOKENIZER} with --download",
    )
    beside = Place(place.title, ("GLUE/tokenizer", "glue/tokenizer"), place.remedy)
    folder = hub.copy_of(place, data)
    if folder is None and download:
        folder = data / place.folders[0]
        hub.fetch(task, REPOSITORY, task, folder)
    if folder is None:
        raise missing(place, data, hub.SAVED[0])
    path = find(beside, data, TOKENIZER_FILE)
    if path is None and not download:
        raise missing(beside, data, TOKENIZER_FILE)
    tokenizer = _tokenizer(task, path, data / beside.folders[0] / TOKENIZER_FILE)
    splits = hub.splits(task, folder)
    absent = [name for name in ("train", "validation") if name not in splits]
    if absent:
        raise InputError.one("data", f"must have the split {absent[0]}", str(folder))
    train, test = (
        _encoded(splits[part], task, tokenizer, folder) for part in ("train", "validation")
    )
    names = getattr(splits["train"].features["label"], "names", ("0", "1"))
    return Dataset(task, *train, *test, classes=tuple(names), kind="tokens")


def _tokenizer(task: str, path: Path | None, target: Path) -> Any:
    """The tokenizer of a file, fetched and kept when there is none, set to records' length."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        needed = "the extra hub, pip install 'privplan[hub]'"
        raise MissingDataError(f"dataset: {task} needs {needed}") from None
    with reading(path or target, "must be a tokenizer"):
        if path is None:
            target.parent.mkdir(parents=True, exist_ok=True)
            Tokenizer.from_pretrained(TOKENIZER).save(str(target))
        found = Tokenizer.from_file(str(path or target))
    padding = [name for name in PADDING if found.token_to_id(name) is not None]
    if not padding:
        rule = f"must know one of the tokens {', '.join(PADDING)}"
        raise InputError.one("data", rule, str(path or target))
    found.enable_truncation(LENGTH)
    found.enable_padding(length=LENGTH, pad_token=padding[0], pad_id=found.token_to_id(padding[0]))
    return found


def _encoded(split: Any, task: str, tokenizer: Any, folder: Path) -> tuple[Tensor, Tensor]:
    *texts, labels = hub.columns(split, (*COLUMNS[task], "label"), folder)
    rows: Sequence[Any] = texts[0] if len(texts) == 1 else list(zip(*texts, strict=True))
    with reading(folder, "must hold texts and labels"):
        x = np.array([one.ids for one in tokenizer.encode_batch(rows)], np.int32)
        return torch.from_numpy(x.reshape(-1, LENGTH)), torch.from_numpy(whole_numbers(labels))
