"""Numbers of YAML: decimal ones as written, none to base 60."""

from __future__ import annotations

import pytest

from privplan.errors import InputError
from privplan.io.yaml_text import plain_data


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e3", "1e3"), ("1.0e+3", 1000.0), ("0x1f", 31), ("-7", -7), ("1_000", 1000)],
)
def test_numbers_are_those_of_yaml(text: str, value: object) -> None:
    assert plain_data(f"rounds: {text}", "spec") == {"rounds": value}


@pytest.mark.parametrize("text", ["1:30", "-2:10:00", "1:30.5"])
def test_numbers_to_base_60_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=f"spec: .*{text} is a number to base 60"):
        plain_data(f"rounds: {text}", "spec")


def test_text_with_a_colon_stays() -> None:
    assert plain_data("partition: dirichlet:0.3\ntime: '1:30'", "spec") == {
        "partition": "dirichlet:0.3",
        "time": "1:30",
    }
