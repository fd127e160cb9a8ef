"""What a comparison says first, and its table for a paper."""

from types import SimpleNamespace

import pytest

from simulate.runs.compare import ComparisonRow, answer, latex


def _row(name, scores, outcome="kept", upper=1.0):
    law = {"sampling": "poisson", "relation": "add_remove", "accountant": "pld", "delta": 1e-3}
    group = SimpleNamespace(group="a_b", realised_upper=upper, name="sums", reason="why", **law)
    other = {"metric": "accuracy", "accuracy_by_group": {}}
    record = [SimpleNamespace(accuracy=one, **other) for one in scores]
    of = {"noise": "seeded", "level": outcome, "failed": [group], "algorithm": name}
    verdict = SimpleNamespace(outcome=outcome, groups=[group], not_finite=False,
                              plan_digest="0123456789ab", **of)  # fmt: skip
    return ComparisonRow(name, "client", tuple(record), (verdict,) * len(scores), ())


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([], ["planned, 80.00%"]),
        ([_row("GDPFed+", [0.7, 0.71])], ["planned, 80.00%"]),
        ([_row("GDPFed+", [0.7, 0.89])], ["planned, 80.00%; these seeds do not tell it apart"]),
        ([_row("FedAvg", [0.9, 0.9], "broken", None)], ["planned", "90.00% without noise"]),
        ([_row("Local-only", [0.9, 0.9], upper=0.0)], ["planned", "no plan pays here"]),
        ([_row("it", [0.9, 0.9], "broken")], ["planned", "0/2 kept", "it: NOT kept: sums: why"]),
    ],
)
def test_the_answer_names_the_best_and_what_is_above_it(others, said):
    lines = answer([_row("planned", [0.79, 0.81]), *others])
    assert len(lines) == len(said)
    assert all(words in line for words, line in zip(said, lines, strict=True))


def test_nothing_is_best_where_no_budget_is_kept_or_a_score_is_missing():
    assert answer([_row("FedAvg", [0.9], "broken", None)]) == []
    assert answer([_row("planned", [0.9]), _row("GDPFed+", [None])]) == []


def test_the_tabular_has_a_cell_for_each_column_and_escapes_names():
    lines = latex([_row("DP_Fed", [0.5])]).splitlines()
    head, line = (one for one in lines if one.startswith(("algorithm", "DP")))
    assert head.count("&") == line.count("&") == lines[0].rpartition("{")[2].count("r")
    assert line.startswith(r"DP\_Fed &")
    assert r"a\_b epsilon" in head
