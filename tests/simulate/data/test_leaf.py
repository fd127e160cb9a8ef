"""Natural splits (LEAF, roles of Shakespeare's plays), published data, CSV dialects."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from privplan.errors import InputError
from simulate.data.columns import read_csv
from simulate.data.formats.leaf import (
    CHARACTERS,
    WINDOW,
    sliding_windows,
    split_windows,
)
from simulate.data.partition.schemes import partition, scheme
from simulate.data.personal import personal_test_records
from simulate.data.registry import load
from tests.simulate import tiny


def leaf_file(records):
    """A file in LEAF's format; its counts are of no use, as in some published ones."""
    content = {
        "users": list(records),
        "num_samples": [99 for _ in records],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in records.items()},
    }
    return json.dumps(content).encode()


def written(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def text_of(tokens_):
    return "".join(CHARACTERS[token] for token in tokens_)


LINE = (
    "To be, or not to be: that is the question: Whether 'tis nobler in the mind to suf"
)


def test_a_window_and_what_comes_next():
    # 81 characters make one window, whose next character is the last of the line.
    assert len(LINE) == 81
    x, y = sliding_windows(LINE)
    assert x.shape == (1, 80)
    to_be = [44, 67, 1, 54, 57, 8]  # "To be," by hand from LEAF's list
    assert x[0, :6].tolist() == to_be
    assert y.tolist() == [58]  # "f"
    assert sliding_windows(LINE[:80])[0].shape == (0, 80)
    x, y = sliding_windows(LINE + "fer")
    assert [text_of(row) for row in x] == [
        (LINE + "fer")[start : start + 80] for start in range(4)
    ]
    assert text_of(y) == "ffer"


@given(st.integers(0, 1000))
def test_a_role_s_later_text_is_for_testing(records):
    train, test = split_windows(records)
    assert len(train) == (max(1, int(0.9 * records)) if records else 0)
    assert len(test) == max(0, records - len(train) - 79)
    if len(test):
        assert train[-1] + WINDOW <= test[0]  # no character of a window in both
        assert test[-1] == records - 1


def roles():
    """A role of 1,080 characters, one of 100, and one too short for a window."""
    draw = np.random.default_rng(0)
    spoken = lambda length: "".join(draw.choice(list(CHARACTERS), length))  # noqa: E731
    return {
        "PLAY_LONG": spoken(1080),
        "PLAY_MIDDLE": spoken(100),
        "PLAY_SHORT": spoken(80),
    }


@pytest.mark.parametrize("name", ["roles.json", "roles.json.gz"])
def test_shakespeare_from_roles(name, tmp_path):
    texts = roles()
    content = json.dumps({"users": list(texts), "text": texts}).encode()
    written(tmp_path / "Shakespeare" / name, content)
    data = load("shakespeare", tmp_path)
    assert data.shape == (80,)
    assert np.bincount(data.train_people).tolist() == [900, 18]
    assert np.bincount(data.test_people).tolist() == [21]
    assert text_of(data.train_x[3]) == texts["PLAY_LONG"][3:83]
    assert data.classes[data.train_y[3]] == texts["PLAY_LONG"][83]
    assert text_of(data.test_x[0]) == texts["PLAY_LONG"][979:1059]
    assert text_of(data.train_x[900]) == texts["PLAY_MIDDLE"][:80]


def grey(number):
    """784 values, the first of them the number's share of ten."""
    return [number / 10] + 783 * [1.0]


def femnist_files(root):
    twenty = range(20)
    records = {
        "f0001": ([grey(row % 10) for row in twenty], [row % 62 for row in twenty]),
        "f0000": ([grey(5)], [61]),
    }
    path = root / "femnist" / "data" / "all_data" / "all_data_0.json"
    written(path, leaf_file(records))
    return root / "femnist" / "data"


def test_femnist_by_writer(tmp_path):
    femnist_files(tmp_path)
    data = load("femnist", tmp_path)
    assert data.shape == (1, 28, 28)
    assert np.bincount(data.train_people).tolist() == [1, 18]
    assert data.test_people.tolist() == [1, 1]
    assert data.test_y.tolist() == [9, 19]
    assert data.classes[data.train_y[18]] == "z"
    seen = data.inputs(data.train_x)
    # Paper is zero.
    assert_allclose(seen[18, 0, 0, :2], [0.5, 0.0], atol=0.5 / 255)
    spread = natural(data, 1)
    for client in (0, 1):
        rows = personal_test_records(data, spread, client, seed=0)
        # Nobody else has a test record of the other writer's label.
        assert rows.tolist() == ([0, 1] if spread.person(client) == 1 else [])


def natural(data, clients, seed=0):
    """Whole people as clients, so many in each of two groups."""
    groups = tuple(
        group.model_copy(update={"clients": clients}) for group in tiny.plan().groups
    )
    labels = data.train_y.numpy()
    return partition(scheme("natural"), labels, groups, seed, data.train_people)


DATA = Path(os.environ.get("PRIVPLAN_DATA", "."))


def needs(name):
    """Skips a test where a file or folder of the data is not there."""
    return pytest.mark.skipif(
        not (DATA / name).exists(), reason=f"PRIVPLAN_DATA has no {name}"
    )


@pytest.mark.slow
@needs("Shakespeare/roles.json.gz")
def test_shakespeare_is_whole():
    data = load("shakespeare")
    assert len(np.unique(data.train_people)) == 1154
    # A role of n characters has n - 80 windows; testing leaves 79 of them out, or all.
    assert 3.7e6 < len(data.train_y) < 0.9 * 4318788
    window = text_of(data.train_x[0])
    assert len(window) == 80
    assert text_of(data.train_x[1]) == window[1:] + CHARACTERS[data.train_y[0]]
    spread = natural(data, 357, seed=1)
    client = 0
    while (data.test_people == spread.person(client)).sum() <= 9:
        client += 1
    rows = personal_test_records(data, spread, client, seed=1)
    assert set(data.test_people[rows]) == {spread.person(client)}


COLUMNS = {"age": ["4.5", "NA"], "place": ["a,b;c", "d"]}


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
def test_dialects_give_the_same_columns(tmp_path, text):
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode())
    assert read_csv(path) == COLUMNS


def test_a_short_line_is_named_by_its_place_in_the_file(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a;b\n1;2\n\n3\n")
    with pytest.raises(InputError, match="2 fields of the header in line 4, found 1"):
        read_csv(path)
