"""Numbers of YAML: decimal ones as written, none to base 60 or, by a zero before them, 8."""

from __future__ import annotations

import pytest

from privplan.errors import InputError
from privplan.files import load_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e3", "1e3"), ("1.0e+3", 1000.0), ("0x1f", 31), ("-7", -7), ("1_000", 1000)],
)
def test_numbers_are_those_of_yaml(text: str, value: object) -> None:
    assert load_yaml(f"rounds: {text}", "spec") == {"rounds": value}


@pytest.mark.parametrize("text", ["1:30", "-2:10:00", "1:30.5"])
def test_numbers_to_base_60_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=f"spec: .*{text} is a number to base 60"):
        load_yaml(f"rounds: {text}", "spec")


def test_text_with_a_colon_stays() -> None:
    assert load_yaml("partition: dirichlet:0.3\ntime: '1:30'", "spec") == {
        "partition": "dirichlet:0.3",
        "time": "1:30",
    }


@pytest.mark.parametrize("text", ["014", "-014", "+014", "0_14", "010", "007", "00_1"])
def test_numbers_to_base_8_are_refused(text: str) -> None:
    """As a number and as a name: the field does not matter, as for base 60."""
    for document in (f"rounds: {text}", f"name: {text}", f"[1, {text}]", f"{text}: 1"):
        with pytest.raises(InputError) as found:
            load_yaml(document, "spec")
        assert f"{text} is a number to base 8; write a decimal number" in str(found.value)
