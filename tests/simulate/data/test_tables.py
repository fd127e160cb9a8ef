"""CSV files as spreadsheets and databases write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import simulate
from privplan.errors import InputError
from simulate.data.sources import columns_of, read_csv

EXPECTED = {"age": ["4.5", "NA"], "place": ["a,b;c", "d"]}


@pytest.mark.parametrize(
    "text",
    [
        'age,place\n4.5,"a,b;c"\nNA,d\n',
        "age;place\n4.5;'a,b;c'\nNA;d\n".replace("'", '"'),
        "age\tplace\n4.5\ta,b;c\nNA\td\n",
        '\ufeffage, place\r\n4.5, "a,b;c"\r\nNA, d\r\n\r\n',
        '\n"age","place"\n"4.5","a,b;c"\n\n"NA","d"'.lstrip(),
    ],
    ids=["comma", "semicolon", "tab", "spreadsheet", "quoted"],
)
def test_dialects_give_the_same_columns(tmp_path: Path, text: str) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode())
    assert read_csv(path) == EXPECTED


def test_a_quoted_field_keeps_its_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text('note,y\n"two\nlines\x0b",1\nb,2\n')
    assert read_csv(path) == {"note": ["two\nlines\x0b", "b"], "y": ["1", "2"]}


def test_a_short_line_is_named_by_its_place_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a;b\n1;2\n\n3\n")
    with pytest.raises(InputError, match="2 fields of the header in line 4, found 1"):
        read_csv(path)


class TorchFormatted:
    """What ``datasets.Dataset.with_format("torch")`` offers."""

    column_names = ("ids", "label")

    def __getitem__(self, name: str) -> object:
        return {"ids": [torch.arange(3)] * 2, "label": torch.tensor([1, 0])}[name]


def test_columns_of_tensors_are_plain_values() -> None:
    assert columns_of(TorchFormatted()) == {"ids": [[0, 1, 2]] * 2, "label": [1, 0]}


def test_statistics_of_load_are_a_file(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,y\n1,2\n")
    with pytest.raises(InputError, match="statistics: must be the path of a file, found 'dict'"):
        simulate.Data.load(path, label="y", statistics={"a": {"mean": 0, "std": 1}})


@pytest.mark.filterwarnings("error")
def test_read_only_arrays_are_records() -> None:
    x = np.ones((4, 2), np.float32)
    x.flags.writeable = False
    assert simulate.Data(x, np.arange(4)).shape == (2,)
