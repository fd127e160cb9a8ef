"""Tables that would train on something else than their owner means are refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
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


def arrays(scale, inputs=2):
    """Numbers from 0 to a scale, not all of them whole."""
    return scale * np.random.default_rng(0).random((70, inputs)).astype("f4")


@pytest.mark.parametrize(
    ("x", "options", "warned"),
    [
        (arrays(1), {}, False),
        (arrays(90), {}, True),
        # Images, also in rows, pixels in bytes, and whole numbers that are codes.
        (arrays(255, 64), {}, False),
        (arrays(255, 64).reshape(70, 1, 8, 8), {}, False),
        (arrays(255).astype("u1"), {}, False),
        (arrays(90).astype("i8"), {}, False),
        (arrays(90).round(), {"codes": (0, 1)}, False),
        (arrays(90).round(), {"codes": (0,)}, True),
    ],
)
def test_arrays_that_are_not_standardised_are_named_once(x, options, warned, caplog):
    data = Data(x, [0, 1] * 35, test=Data(x + 1, [0, 1] * 35), **options)
    for _ in range(2):
        data.prepared(())
    assert caplog.text.count("one is above 3 in") == warned
    # A table has said it.
    table = {"age": arrays(90)[:, 0].tolist(), "ill": [0, 1] * 35}
    caplog.clear()
    Data.from_table(table, label="ill", statistics="none").prepared(())
    assert caplog.text.count("one is above 3 in") == 1


@pytest.mark.parametrize(("digits", "warned"), [(6, True), (1, False)])
def test_statistics_of_the_records_themselves_are_named(digits, warned, caplog):
    ages = arrays(90)[:, 0].tolist()
    rounded = {"mean": round(np.mean(ages), digits), "std": round(np.std(ages), digits)}
    table = {"age": ages, "ill": [0, 1] * 35}
    Data.from_table(table, label="ill", statistics={"age": rounded})
    assert ("mean and std of age are those of these records" in caplog.text) == warned


def test_new_records_are_encoded_as_the_table_was(tmp_path):
    data = read(tmp_path, HEADER + ROWS)
    (tmp_path / "new.csv").write_text("sex,age\nf,0.0\nm,0.1\n")
    new = data.encode(tmp_path / "new.csv")
    assert_allclose(new, data.x[:2])
    assert_allclose(data.encode({"age": [0.0], "sex": ["f"]}), data.x[:1])
    # Statistics of other columns of the first table are not asked for.
    stated = {"age": {"mean": 2, "std": 2}, "dose": {"mean": 0, "std": 1}}
    table = {"age": [0.0, 4.0], "dose": [0, 1], "ill": [0, 1]}
    data = Data.from_table(table, label="ill", features=["age"], statistics=stated)
    assert data.encode({"age": [6.0]}).tolist() == [[2.0]]
    with pytest.raises(InputError, match="features: must be among the columns dose"):
        data.encode({"dose": [1]})
    with pytest.raises(InputError, match=r"data.encode: needs data of a table"):
        Data(data.x, [0, 1]).encode({"age": [6.0]})
    words = {"text": [[1, 2], [3, 4]], "ill": [0, 1]}
    words_data = Data.from_table(words, label="ill")
    assert words_data.encode({"text": [[5, 6]]}).tolist() == [[5, 6]]


def test_whole_numbers_of_pandas_are_categories():
    table = {"ward": [1.0, "2.0", 2, None], "ill": [0, 1, 0, 1]}
    wards = {"ward": {"categories": [1, 2]}}
    data = Data.from_table(table, label="ill", statistics=wards)
    assert data.x.tolist() == [[1, 0], [0, 1], [0, 1], [0, 0]]
    for unlisted in (1.5, "two.0"):
        table["ward"][0] = unlisted
        with pytest.raises(InputError, match="must be one of the 2 categories"):
            Data.from_table(table, label="ill", statistics=wards)


def test_a_column_that_stands_twice_in_statistics_is_named(tmp_path):
    numbers = '"age": {"mean": 0, "std": 1}'
    (tmp_path / "s.json").write_text(f"{{{numbers}, {numbers}}}")
    table = {"age": [0.1, 0.2], "ill": [0, 1]}
    with pytest.raises(InputError, match=r"JSON .the key 'age' stands twice"):
        Data.from_table(table, label="ill", statistics=tmp_path / "s.json")


def test_batches_and_columns_of_classes_are_answered():
    loader = torch.utils.data.DataLoader([(np.zeros(2), 0)])
    with pytest.raises(InputError, match=r"data.x: .* write loader.dataset, found"):
        Data(loader)
    with pytest.raises(InputError, match=r"data.y: .* write y.argmax\(1\), found"):
        Data(arrays(1), np.eye(2)[[0, 1] * 35])
