"""Fields of the server: defaults, and one line per fault."""

from __future__ import annotations

from typing import Any

import pytest

from privplan.errors import InputError
from privplan.spec.spec import Spec
from tests.simulate import tiny


def test_a_plan_names_every_number_and_old_specs_have_no_new_field() -> None:
    spec = tiny.spec(server={"optimizer": "adam"}, averaging={})
    adam = {"optimizer": "adam", "learning_rate": 0.01}
    data = spec.model_dump(mode="json")
    assert data["server"] == {**adam, "epsilon": 0.001}
    assert data["averaging"] == {"method": "ema", "decay": 0.8}
    assert Spec.parse(data) == spec
    assert not {"server", "averaging"} & tiny.spec().model_dump().keys()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"server": {"optimizer": "lion"}},
            "server.optimizer: must be one of 'adagrad', 'adam', 'momentum', 'sgd' or 'yogi', "
            "found 'lion'",
        ),
        (
            {"server": {"optimizer": "sgd", "momentum": 0.5}},
            "server.momentum: must be left out for sgd, which takes learning_rate, found 0.5",
        ),
        (
            {"server": {"optimizer": "momentum", "momentum": 1}},
            "server.momentum: must be less than 1, found 1",
        ),
        (
            {"averaging": {"method": "tail", "decay": 0.5}},
            "averaging.decay: is only for method: ema, found 0.5",
        ),
        (
            {"averaging": {"fraction": 0.5}},
            "averaging.fraction: is only for method: tail, found 0.5",
        ),
    ],
)
def test_faults_are_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        tiny.spec(**fields)
    assert str(caught.value) == message
