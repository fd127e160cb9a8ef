"""Tables that would train on something else than their owner means are refused."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from privplan.errors import InputError
from simulate.data.own import Data

HEADER = "age,sex,patient,ill\n"
ROWS = "".join(f"0.{n},{'fm'[n % 2]},p{n // 3},{n % 2}\n" for n in range(9))
OPTIONS = {"label": "ill", "client": "patient"}


def read(folder, text, test=None, **options):
    statistics = '{"age": {"mean": 0, "std": 1}, "sex": {"categories": ["f", "m"]}}'
    (folder / "s.json").write_text(statistics)
    (folder / "t.csv").write_text(text)
    if test is not None:
        (folder / "test.csv").write_text(test)
        options["test"] = folder / "test.csv"
    return Data.load(
        folder / "t.csv", **{"statistics": folder / "s.json", **OPTIONS, **options}
    )


@pytest.mark.parametrize(
    ("text", "test", "fault"),
    [
        (
            ROWS.replace(",m,", ",x,", 1),
            None,
            "data: must be one of the 2 categories of sex",
        ),
        (
            ROWS.replace(",1\n", ",0\n"),
            None,
            "data.y: must have records of two classes",
        ),
        (
            ROWS,
            HEADER + "0.1,f,p0,7\n",
            "data.test: must have classes of the training records",
        ),
        (ROWS, "age,sex,ill\n0.1,f,1\n", "test.client: must be one of the columns"),
        (ROWS.replace("p1", "", 1), None, "client: must not be missing in patient"),
    ],
)
def test_odd_tables_are_refused(tmp_path, text, test, fault):
    with pytest.raises(InputError, match=f"^{fault}"):
        read(tmp_path, HEADER + text, test).split()


def test_standardised_columns_need_no_statistics(tmp_path):
    data = read(tmp_path, HEADER + ROWS, statistics=Path("none"), features=("age",))
    assert_allclose(data.records[:, 0], [n / 10 for n in range(9)], rtol=1e-6)


def test_a_client_without_a_name_is_named():
    with pytest.raises(InputError, match="none in row 2"):
        Data(np.zeros((4, 1), np.float32), [0, 1, 0, 1], ["a", "a", " ", "b"])


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
@pytest.mark.parametrize("options", [{}, {"statistics": Path("none")}])
def test_the_index_of_pandas_is_no_input(tmp_path, name, options):
    lines = (HEADER + ROWS).splitlines()
    text = "\n".join(f"{row - 1},{line}" for row, line in enumerate(lines))
    text = text.replace("-1,", f"{name},", 1)
    with pytest.raises(InputError, match="column 1 has none, as the index that pandas"):
        read(tmp_path, text, **options)
    assert read(tmp_path, text, features=("age", "sex")).shape == (3,)


@pytest.mark.parametrize("name", ["ill", "patient"])
def test_statistics_of_no_input_are_refused(name):
    table = {"age": [0.1, 0.2], "ill": [0, 1], "patient": ["a", "b"]}
    numbers = {"mean": 0, "std": 1}
    with pytest.raises(InputError, match=f"^statistics.{name}: must be of a feature"):
        Data.from_table(table, **OPTIONS, statistics={"age": numbers, name: numbers})


@pytest.mark.parametrize(("scale", "warned"), [(1, False), (90, True)])
def test_columns_that_are_not_standardised_are_named(scale, warned, caplog):
    ages = [scale * (row % 7) / 7 for row in range(70)]
    table = {"flag": [0, 1] * 35, "age": ages, "ill": [0, 1] * 35}
    Data.from_table(table, label="ill", statistics="none")
    assert ("one is above 3 in age, which" in caplog.text) == warned
    caplog.clear()
    statistics = {name: {"mean": 0, "std": 1} for name in ("flag", "age")}
    Data.from_table(table, label="ill", statistics=statistics)
    assert caplog.text == ""
