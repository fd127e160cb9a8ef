"""The table of the five papers names registered systems, attacks and tables."""

import re
from pathlib import Path

import pytest

from privplan.contrib.reproduction.tables import table_of
from simulate.algorithms.registry import ALGORITHMS
from simulate.attacks.view import ATTACKS

ROOT = Path(__file__).parents[3]
PAPERS = {"Robust-HDP", "GDPFed+", "DP2-FedSAM", "DP-FedPGN", "HyperFL"}
OF_COMMANDS = {"membership"}  # attacks that are no reconstruction


def rows_of(text):
    """The rows of the table: paper, what it names, and words in code."""
    _, _, part = text.partition("## What the five papers name")
    rows = []
    for line in part.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 3:
            rows.append((cells[0], cells[1], re.findall(r"`([^`]+)`", cells[2])))
    return rows[1:]  # without the head


def names_in(rows):
    """Algorithms, attacks and tables that the rows name, each as a set."""
    algorithms = set()
    attacks = set()
    tables = set()
    for _, _, words in rows:
        for word in words:
            *_, last = word.split(" ")
            if "privplan reproduce" in word:
                tables.add(last)
            elif "--attack" in word or word in ATTACKS:
                attacks.add(last)
            elif "--algorithm" in word:
                algorithms.add(last)
            else:
                algorithms.add(word)
    return algorithms, attacks, tables


def faults_of(text):
    """What the table names and no registry has, and the other way round."""
    rows = rows_of(text)
    algorithms, attacks, tables = names_in(rows)
    faults = sorted(algorithms.symmetric_difference(ALGORITHMS.names()))
    faults += sorted(attacks.symmetric_difference({*ATTACKS.names(), *OF_COMMANDS}))
    for name in tables:
        if table_of(name).kind == "left out":
            faults.append(name)
    faults += sorted(PAPERS - {paper for paper, _, _ in rows})
    faults += [what for _, what, words in rows if not words]
    return faults


@pytest.fixture(scope="module")
def page():
    """The page with the table."""
    return (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")


def test_the_table_names_what_is_registered(page):
    assert faults_of(page) == []


@pytest.mark.parametrize(
    ("name", "other", "fault"),
    [
        ("`GDPFed-op`", "`GDPFed-opt`", "GDPFed-op"),
        ("--attack tailored", "--attack closed", "tailored"),
        ("hyperfl-figure-6", "hyperfl-figure-5", "hyperfl-figure-5"),
        ("| DP2-FedSAM |", "| FedSAM |", "DP2-FedSAM"),
    ],
)
def test_a_planted_fault_is_seen(page, name, other, fault):
    assert fault in faults_of(page.replace(name, other))
