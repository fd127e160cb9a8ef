"""Certificate rows: names, JSON, notes and disagreements."""

import json
import math
import re

import numpy as np
import pytest
from pydantic import ValidationError

from privplan.accounting.accountant import Interval
from privplan.accounting.certificate import CertificateRow, certify, disagreements
from privplan.accounting.release import History, Release
from privplan.api import account, calibrate
from privplan.errors import InputError

HISTORY = History.repeated(Release(1.5, 0.02), 50)


class Fixed:
    """An accountant that always says the same."""

    version = "1"

    def __init__(self, name, lower, upper, kind="second opinion", guarantee=False):
        self.name = name
        self.bounds = Interval(lower, upper)
        self.kind = kind
        self.guarantee = guarantee

    def why_not(self, history, relation):
        return None

    def epsilon(self, history, delta, relation):
        return self.bounds


def rows_of(*accountants):
    return certify(
        HISTORY, group="g", delta=1e-5, relation="add_remove", accountants=accountants
    )


def test_rows_are_frozen_and_refuse_what_they_do_not_know():
    (row,) = rows_of("rdp")
    with pytest.raises(ValidationError):
        row.epsilon_upper = 0.0
    with pytest.raises(ValidationError):
        CertificateRow(**row.model_dump(), extra=1)
    with pytest.raises(ValidationError, match="epsilon_lower: must be at most"):
        CertificateRow(**{**row.model_dump(), "epsilon_lower": 9.0})
    with pytest.raises(ValidationError):
        CertificateRow(**{**row.model_dump(), "epsilon_upper": math.nan})


def test_epsilon_is_that_of_proven_bounds_where_no_other_was_asked_for():
    releases = {
        "noise_multiplier": 1,
        "sampling_ratio": 0.01,
        "rounds": 9,
        "delta": 1e-5,
    }
    alone = account(**releases, accountants="rdp")
    assert alone.epsilon == alone["rdp"][0].epsilon_upper < math.inf
    with_pld = account(**releases, accountants=["rdp", "pld"])
    assert with_pld.epsilon == with_pld["pld"].epsilon < alone.epsilon
    formula = account(**releases, accountants="gdp")
    assert formula.epsilon == math.inf
    assert formula.warnings[-1].startswith("no accountant here has a proven bound")


def test_infinity_survives_strict_json():
    history = History.repeated(Release(0.0, 0.1), 1)
    (row,) = certify(
        history, group="g", delta=1e-5, relation="add_remove", accountants=["rdp"]
    )
    text = json.dumps(row.model_dump(mode="json"), allow_nan=False)
    assert json.loads(text)["epsilon_upper"] == "inf"
    assert CertificateRow.model_validate_json(text) == row
    assert json.loads(row.model_dump_json())["epsilon_upper"] == "inf"


def test_an_accountant_without_the_cell_gives_a_note():
    rows = certify(
        HISTORY,
        group="g",
        delta=1e-5,
        relation="replace_one",
        accountants=["rdp", "prv", "gdp"],
    )
    assert [row.accountant for row in rows] == ["rdp"]
    assert list(rows.notes) == [
        "prv: prv-accountant does not cover replace_one",
        "gdp: no central limit for poisson sampling under replace_one",
    ]


@pytest.mark.parametrize(
    ("ask", "wrong", "field"),
    [
        (
            account,
            {"contributions": 0},
            "contributions: must be a whole number in [1, 100]",
        ),
        (account, {"rounds": 50.5}, "rounds: must be a whole number"),
        (account, {"rounds": True}, "rounds: must be a number"),
        (
            account,
            {"noise_multiplier": np.ones(2), "delta": np.ones(3)},
            "releases: must be",
        ),
        (
            account,
            {"noise_multiplier": np.ma.array([1.0], mask=[1])},
            "noise_multiplier: must be",
        ),
        (
            account,
            {"noise_multiplier": np.ones(2), "accountants": ["rdp"]},
            "accountants: must",
        ),
        (
            account,
            {"history": HISTORY, "delta": np.ones(2)},
            "history: must be left out",
        ),
        (calibrate, {"epsilon": None}, "epsilon: must be a number"),
    ],
)
def test_wrong_values_end_in_one_line(ask, wrong, field):
    numbers = {"noise_multiplier": 1.0, "sampling_ratio": 0.1}
    numbers |= {"rounds": 5, "delta": 1e-5}
    if ask is not account:
        numbers["noise_multiplier"] = None
    with pytest.raises(InputError, match=re.escape(field)):
        ask(**(numbers | wrong))


def test_intervals_that_do_not_meet_are_reported():
    guarantee = Fixed("pld", 1.0, 1.01, "two-sided bound", guarantee=True)
    warnings = disagreements(
        rows_of(guarantee, Fixed("prv", 1.02, 1.03), Fixed("low", 0.0, 0.9))
    )
    assert len(warnings) == 2
    assert warnings[0].startswith("group g: prv says epsilon is in [1.02, 1.03]")
    assert "delta 1e-05, poisson, add_remove" in warnings[0]
    met = [
        guarantee,
        Fixed("prv", 1.005, 1.03),
        Fixed("gdp", 0.5, 0.5, "approximation"),
    ]
    assert disagreements(rows_of(*met)) == []
    assert disagreements(rows_of(Fixed("prv", 1.02, 1.03))) == []
