"""What four people call in turn, from a spec to a page, without a dead end."""

import csv
from pathlib import Path

import pytest

from tests.command import answer, privplan

HOSPITALS = """\
name: hospitals
groups: [{name: small, clients: 8, epsilon: 4}, {name: large, clients: 4, epsilon: 16}]
delta: 0.01
rounds: 2
cohort: 6
model: {name: mlp-digits, parameters: 2410}
"""


def _call(line):
    return answer(*line.split())


@pytest.mark.slow
def test_engineer_officer_and_researcher_reach_their_ends(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text(HOSPITALS)
    assert "next: privplan simulate plan.json" in _call("solve spec.yaml -o plan.json")
    assert privplan("verify", "plan.json").exit_code == 5  # nothing ran
    _call(
        "simulate plan.json --algorithm planned --dataset digits --seed 1 -o run --device cpu"
    )
    assert _call("verify run").startswith("kept, executed again (all 2 rounds)")
    for source in ("plan.json", "run"):  # the officer has whichever file was sent
        assert "small" in _call(f"what-if {source} small=2,4 --html page.html")
        _call(f"report {source} -o page.html")
        assert "hospitals" in Path("page.html").read_text()
    assert "small decides" in _call("explain run/plan.json")
    methods = "GDPFed+,planned,FedAvg"
    output = _call(
        f"compare spec.yaml --algorithms {methods} --dataset digits --seeds 1 -o out"
    )
    assert "these seeds decide no best method" in output  # there is one
    rows = list(csv.DictReader(Path("out/results.csv").read_text().splitlines()))
    assert {row["algorithm"] for row in rows} == set(methods.split(","))
    assert Path("out/results.tex").read_text().startswith(r"\begin{tabular}")
