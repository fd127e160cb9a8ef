"""Individual budgets into groups: exact against enumeration."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privplan.accounting.gdp import epsilon_of
from privplan.errors import InputError
from privplan.spec.grouping import group_budgets, groupings, read_budgets, strengths
from privplan.spec.spec import Spec
from tests.planning.problems import spec_data

budgets = st.lists(
    st.sampled_from([0.1, 0.2, 0.5, 0.7, 1.0, 1.3, 2.0, 5.0, 9.0]), min_size=1
)


@settings(max_examples=60, deadline=None)
@given(budgets.map(lambda values: values[:10]), st.integers(1, 4))
def test_no_other_grouping_keeps_more(epsilons, max_groups):
    values = np.array(epsilons)
    deltas = np.full(len(epsilons), 1e-5)
    mu = np.sort(strengths(values, 1e-5))
    for grouping in groupings(values, deltas, max_groups):
        num_groups = len(grouping.clients)

        # Every grouping of the sorted strengths: a group has its weakest one.
        best = 0.0
        for cuts in itertools.combinations(range(1, len(mu)), num_groups - 1):
            ends = [0, *cuts, len(mu)]
            precision = sum((b - a) * mu[a] for a, b in itertools.pairwise(ends))
            best = max(best, precision)
        assert grouping.precision == pytest.approx(best / mu.sum(), rel=1e-9)
        assert sum(grouping.clients) == len(epsilons)


def test_strengths_spend_the_budget():
    epsilons = np.array([0.1, 0.7, 3.0, 11.0])
    for epsilon, mu in zip(epsilons, strengths(epsilons, 1e-5), strict=True):
        assert epsilon_of(float(mu), 1e-5) == pytest.approx(epsilon, rel=1e-5)


def test_a_spec_from_a_file_of_budgets(tmp_path):
    lines = ["client,epsilon", *(f"c{i},{0.5 if i % 3 else 2.0}" for i in range(300))]
    (tmp_path / "budgets.csv").write_text("\n".join(lines) + "\n")
    data = spec_data(groups_from="budgets.csv")
    del data["groups"]
    spec = Spec.parse(data, tmp_path)
    assert [(g.clients, g.epsilon) for g in spec.groups] == [(200, 0.5), (100, 2.0)]
    assert spec.population == 300
    again = Spec.parse(spec.model_dump(mode="json"), tmp_path / "elsewhere")
    assert again == spec


def test_all_bad_lines_are_named_up_to_twenty(tmp_path):
    path = tmp_path / "budgets.csv"
    path.write_text("client,epsilon,delta\na,1,0.1\na,1,0.1\nb,x,2\n" + "c,1\n" * 30)
    with pytest.raises(InputError) as caught:
        read_budgets(path, "n^-1.1")
    lines = str(caught.value).splitlines()
    assert [line.partition(" of ")[0][-1] for line in lines[:3]] == ["3", "4", "5"]
    assert len(lines) == 20


def test_a_group_has_the_least_epsilon_and_delta_of_its_members():
    epsilons = np.repeat([4.0, 1.0, 1.1], 100)
    deltas = np.repeat([1e-9, 1e-2, 1e-3], 100)
    two_groups = group_budgets(epsilons, deltas, 2)
    assert two_groups.clients == (200, 100)
    assert two_groups.epsilons == (1.0, 4.0)
    assert two_groups.deltas == (1e-3, 1e-9)
    one_group = group_budgets(epsilons, deltas, 1)
    assert one_group.epsilons == (1.0,)
    assert one_group.deltas == (1e-9,)


@given(
    st.lists(
        st.tuples(st.floats(0.1, 8), st.sampled_from([1e-9, 1e-6, 1e-5, 1e-3, 1e-2])),
        min_size=1,
        max_size=30,
    ),
    st.integers(1, 5),
)
def test_no_client_gets_a_looser_budget_than_its_own(budgets, groups):
    epsilons, deltas = np.array(sorted(budgets)).T
    issued = group_budgets(epsilons, deltas, groups)
    assert np.all(np.repeat(issued.epsilons, issued.clients) <= epsilons)
    issued_deltas = np.repeat(issued.deltas, issued.clients)
    assert np.all(np.sort(issued_deltas) <= np.sort(deltas))


def test_a_plan_of_several_deltas_says_what_its_groups_have(tmp_path):
    (tmp_path / "budgets.csv").write_text(
        "client,epsilon,delta\na,0.1,1e-5\nb,1,1e-6\nc,8,1e-5\n"
    )
    data = {**spec_data(groups_from="budgets.csv", cohort=3), "groups": []}
    warning = "groups_from: each group has the least epsilon and delta of its members"
    assert warning in Spec.parse(data, tmp_path).warnings()
    (tmp_path / "budgets.csv").write_text("client,epsilon\na,0.1\nb,1\nc,8\n")
    assert warning not in Spec.parse(data, tmp_path).warnings()


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfclient,epsilon\r\na,1.5\r\nb,2\r\n",
        b'"client", "epsilon"\n"Lee, Ann","1.5"\n\n"q""q", "2"\n',
    ],
)
def test_files_of_spreadsheets_and_with_quotes_are_read(content, tmp_path):
    path = tmp_path / "budgets.csv"
    path.write_bytes(content)
    assert read_budgets(path, 1e-5)[0].tolist() == [1.5, 2.0]


def test_free_groups_are_as_many_as_a_cohort_serves(tmp_path):
    budgets = np.exp(np.random.default_rng(5).normal(0.2, 0.9, 300))
    lines = [
        "client,epsilon",
        *(f"c{i},{budget:.4f}" for i, budget in enumerate(budgets)),
    ]
    (tmp_path / "budgets.csv").write_text("\n".join(lines) + "\n")
    planning = {"ratios": "balanced", "free": ["ratios", "weights", "groups"]}
    data = spec_data(groups_from="budgets.csv", cohort=5, planning=planning)
    del data["groups"]
    spec = Spec.parse(data, tmp_path)
    assert len(spec.groups) == 5


def test_groups_beside_a_file_of_budgets_are_refused(tmp_path):
    (tmp_path / "budgets.csv").write_text("client,epsilon\na,0.1\nb,1.0\nc,8.0\n")
    data = {**spec_data(), "groups_from": "budgets.csv"}
    with pytest.raises(
        InputError, match="groups: must be left out with groups_from, whose file"
    ):
        Spec.parse(data, tmp_path)
    data = {**data, "groups": [], "cohort": 3}
    filled = Spec.parse(data, tmp_path)
    assert Spec.parse(filled.model_dump(mode="json"), tmp_path) == filled
