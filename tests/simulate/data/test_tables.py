"""CSV files as spreadsheets and databases write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from privplan.errors import InputError
from simulate.data.sources import read_csv

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


def test_a_short_line_is_named_by_its_place_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a;b\n1;2\n\n3\n")
    with pytest.raises(InputError, match="2 fields of the header in line 4, found 1"):
        read_csv(path)
