"""Pickle files are data, never programs."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privplan.errors import InputError
from simulate.data.registry import read_pickle
from tests.simulate.data import published

ARRAY = np.arange(12, dtype=np.uint8).reshape(3, 4)


def test_a_file_of_python_2_is_read(tmp_path: Path) -> None:
    published.dump(
        {b"data": ARRAY, b"labels": [1, 2, 3], b"batch_label": b"one"}, tmp_path / "batch"
    )
    content = (tmp_path / "batch").read_bytes()
    assert b"cnumpy.core.multiarray\n_reconstruct\n" in content
    found = read_pickle(tmp_path / "batch")
    np.testing.assert_array_equal(found[b"data"], ARRAY)
    assert found[b"labels"] == [1, 2, 3]
    assert found[b"batch_label"] == b"one"


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_a_file_of_python_3_is_read(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps({"data": ARRAY, b"text": b"\xff\x00"}, protocol=protocol))
    found = read_pickle(path)
    np.testing.assert_array_equal(found[b"data"], ARRAY)
    assert found[b"text"] == b"\xff\x00"


class Call:
    """Calls a function when it is unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


MARK = "was-run"
BAD = {
    "system": lambda mark: Call(os.system, f"touch {mark}"),
    "eval": lambda mark: Call(eval, f"open({str(mark)!r}, 'w')"),
    "open": lambda mark: Call(open, str(mark), "w"),
    "getattr": lambda mark: Call(getattr, ARRAY, "tofile"),
    "subclass": lambda mark: np.zeros(2).view(np.recarray),
    "load": lambda mark: Call(np.load, str(mark)),
    "class": lambda mark: Path(mark),
    "ndarray": lambda mark: Call(np.ndarray, (2**20,), "O"),
    "huge": lambda mark: Call(np.ndarray, (2**50,)),
    "objects": lambda mark: np.array([1, "a"], dtype=object),
    "fields": lambda mark: np.zeros(2, dtype=[("a", "i4"), ("b", "f8")]),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_file_that_would_run_code_is_refused_and_not_run(
    kind: str, protocol: int, tmp_path: Path
) -> None:
    mark, path = tmp_path / MARK, tmp_path / "batch"
    content = {b"data": ARRAY, b"labels": [BAD[kind](mark)]}
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    with pytest.raises(InputError, match="data: must be a pickle of plain data") as caught:
        read_pickle(path)
    assert "\n" not in str(caught.value)
    assert not mark.exists()


def test_the_attack_of_this_test_works_where_it_is_not_refused(tmp_path: Path) -> None:
    mark = tmp_path / MARK
    pickle.loads(pickle.dumps(BAD["system"](mark)))
    assert mark.exists()
