"""Proofs in exact arithmetic: what they show and refuse, and where they round."""

import ast
import json
import math
import random
import sys
import types
from pathlib import Path

import pytest
from flint import arb

from privplan import proof
from privplan.accounting.accountant import accountant
from privplan.accounting.pld.accountant import PldAccountant
from privplan.accounting.release import History, Relation, Release
from privplan.planning.solver import solve
from privplan.proven import finding_on, with_proofs
from privplan.spec.presets import PRESETS, preset
from privplan.spec.spec import Spec
from tests.proof.checks import CHECKS, broken

OF_PAIRS = "fixed_size (up to 2 clients of one person)"
SOURCE = Path(proof.__file__).read_text()


def altered(before="", after=""):
    """The module with a part of its text replaced."""
    assert before in SOURCE
    module = types.ModuleType("altered_proof")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(SOURCE.replace(before, after), "altered_proof", "exec"), vars(module))
    return module


def test_every_check_of_rounding_holds():
    assert broken(altered()) == []


FLIPPED = [
    ("ball.upper().ceil()", "ball.upper().floor()"),
    ("ball.upper().ceil()", "ball.lower().ceil()"),
    ("(product + most_of_a_unit) // SCALE", "product // SCALE"),
    ("self.infinite + self.masses.after(count).total()", "self.infinite"),
    ("inside.first(below).total() + inside.after(below)", "inside.after(below)"),
    ("self.infinite + other.infinite", "self.infinite"),
    ("self.lowest + other.lowest", "self.lowest + other.lowest - 1"),
    ("return even.plus(self, lowest, highest)", "return even"),
    ("math.floor(Fraction(epsilon) / Fraction(self.step)) + 1",
     "math.floor(Fraction(epsilon) / Fraction(self.step)) + 2"),
    ("(self.infinite + above.total()).weighed", "above.total().weighed"),
    ("UpperMasses([corners[-1][1]])", "UpperMasses(())"),
    ("x * (after - before)", "corners[1][0] * (after - before)"),
    ("while slope < corners[-1][2]:", "while False:"),
    ("strike = x.upper()", "strike = x.lower()"),
    ("return self.put(x) + 1 - x", "return self.put(x) - x"),
    ("balls[-1] += slope - before[1]", "balls[-1] += before[1] - slope"),
    ("if not bound <= arb(delta):", "if bound > arb(delta):"),
    ("return [removed, added]", "return [removed]"),
    ("add(e) if e < 0 else remove(e)", "remove(e)"),
    ("self.q[0] >= 1", "self.q[0] >= 0.5"),
    ("place - j * self.shift", "place + j * self.shift"),
    ("mixed(once[0], twice[0], rare)", "once[0]"),
    ("laplace(bound * moved)", "laplace(bound)"),
    ("discrete_laplace(bound, moved)", "discrete_laplace(bound, 1)"),
    ("moved = 2 if relation", "moved = 1 if relation"),
]  # fmt: skip
"""Each place where a number is rounded, moved or kept, turned to the other side."""


@pytest.mark.parametrize(("before", "after"), FLIPPED)
def test_a_direction_that_is_flipped_is_seen(before, after):
    module = altered(before, after)
    assert broken(module)


@pytest.mark.parametrize(
    "lowered",
    [
        lambda masses: masses - masses,
        lambda masses: -masses,
        lambda masses: masses / 2,
        lambda masses: masses // 2,
        lambda masses: masses * 0.5,
        lambda masses: masses + 0.5,
        lambda masses: float(masses),
        lambda masses: int(masses),
        lambda masses: round(masses),
        lambda masses: math.floor(masses),
    ],
)
def test_lowering_a_mass_is_a_type_error(lowered):
    masses = proof.UpperMasses([arb(1) / 3])
    with pytest.raises((TypeError, AttributeError)):
        lowered(masses)


def test_the_program_imports_nothing_of_the_package():
    modules = set()
    for node in ast.walk(ast.parse(SOURCE)):
        if isinstance(node, ast.Import):
            modules |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            modules.add(node.module.split(".")[0])
    assert modules - set(sys.stdlib_module_names) == {"flint"}


# --- Against the accountants. --------------------------------------------------------


def random_question(draw):
    """A history over all laws that can be proven, its relation and a delta."""
    relation = draw.choice(["add_remove", "add_remove", "replace_one", "zero_out"])
    noise = math.exp(draw.uniform(math.log(0.5), math.log(6)))
    ratio = math.exp(draw.uniform(math.log(0.005), math.log(0.4)))
    rounds = draw.choice([1, 2, 7, 50, 50, 120])
    laws = ["poisson", "fixed_size", "cyclic_poisson:4", "full", "min_separation:5"]
    if relation == "add_remove":
        laws += ["capped_poisson:1000"]
    if relation != "replace_one":
        laws += ["poisson (up to 3 clients of one person)", "random_allocation:8"]
        laws += ["cyclic_allocation:3:20", "banded_separation:4"]
    law = draw.choice(laws)
    is_full = law.startswith(
        ("full", "min_", "banded_", "random_", "cyclic_allocation")
    )
    if "allocation" in law:
        rounds = draw.choice([1, 3, 6])
    releases = [(Release(noise, 1.0 if is_full else ratio, law), rounds)]
    if draw.random() < 0.15 and "person" not in law:
        releases.append((Release(2 * noise, 1.0, "full"), 2))
    if draw.random() < 0.1 and "person" not in law and not is_full:
        releases.append((Release(8.0, 1.0, "full", "laplace"), 1))
    delta = math.exp(draw.uniform(math.log(1e-8), math.log(1e-3)))
    return History(releases), Relation(relation), delta


def check_upper_and_lowered(seed):
    """Its upper bound is proven; 1e-5 below its lower bound nothing is."""
    history, relation, delta = random_question(random.Random(seed))
    bounds = accountant("pld").epsilon(history, delta, relation)
    finding = finding_on(history, relation, bounds.upper, delta)
    assert finding.outcome == "proven", (
        seed,
        history,
        relation,
        delta,
        bounds,
        finding,
    )
    sharp = PldAccountant(tolerance=2e-5).epsilon(history, delta, relation)
    lowered = max(sharp.lower, bounds.lower) * (1 - 1e-5)
    if lowered > 0:
        finding = finding_on(history, relation, lowered, delta)
        assert finding.outcome.startswith("not proven"), (seed, history, lowered)


SLOW_SEEDS = (7, 8)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=[pytest.mark.slow] if seed in SLOW_SEEDS else [])
        for seed in range(5, 11)
    ],
)
def test_upper_bounds_are_proven_and_lowered_ones_are_not(seed):
    check_upper_and_lowered(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(5), *range(11, 206)])
def test_two_hundred_bounds_are_proven_and_none_that_are_lowered(seed):
    check_upper_and_lowered(seed)


def test_a_gaussian_is_proven_to_all_digits():
    # Balle and Wang 2018, Theorem 8, is exact: the accountant's bounds are 1e-12 apart.
    history = History.repeated(Release(3.0, 1.0, "full"), 50)
    bounds = accountant("pld").epsilon(history, 1e-5, Relation.ADD_REMOVE)
    upper = finding_on(history, Relation.ADD_REMOVE, bounds.upper, 1e-5)
    assert upper.outcome == "proven"
    assert upper.points == 1
    lowered = bounds.lower * (1 - 1e-12)
    assert finding_on(history, Relation.ADD_REMOVE, lowered, 1e-5).outcome != "proven"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "gdpfed-fmnist"])
def test_plans_of_presets_are_proven_from_their_files_alone(name, tmp_path, capsys):
    assert name in PRESETS
    text = preset(name)
    (tmp_path / "spec.yaml").write_text(text)
    plan, findings = with_proofs(solve(Spec.load(tmp_path / "spec.yaml")))
    assert {finding.outcome for finding in findings.values()} == {"proven"}
    assert max(finding.seconds for finding in findings.values()) < 5
    plan.save(tmp_path / "plan.json")
    assert proof.main(str(tmp_path / "plan.json")) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[1] for line in printed] == [" proven"] * len(plan.groups)
    assert type(plan).load(tmp_path / "plan.json").proven == plan.proven


def test_a_plan_whose_bound_was_lowered_is_not_proven(tmp_path, capsys):
    (tmp_path / "spec.yaml").write_text(preset("digits"))
    plan = solve(Spec.load(tmp_path / "spec.yaml"))
    data = json.loads(plan.to_json())
    for row in data["certificate"]:
        row["epsilon_upper"] *= 0.99
    (tmp_path / "plan.json").write_text(json.dumps(data))
    assert proof.main(str(tmp_path / "plan.json")) == 5
    assert "not proven: delta 1." in capsys.readouterr().out


@pytest.mark.parametrize(
    "sampling",
    [
        "poisson",
        "full",
        "min_separation:7",
        "cyclic_poisson:5",
        "banded_separation:7",
        "random_allocation:10",
        "cyclic_allocation:2:5",
        "capped_poisson:100",
    ],
)
def test_releases_are_those_of_the_plan(sampling):
    law = Release(1.0, 1.0, sampling).sampling.law
    group = {"sampling": None, "noise_multiplier": 1.0, "sampling_ratio": 1.0}
    (rounds,) = proof.releases_of(group, {"sampling": sampling, "rounds": 50})
    assert rounds.count == law.rounds_of_client(50)


def test_releases_of_records_and_of_segments():
    spec = {"sampling": "poisson", "rounds": 50}
    group = {"noise_multiplier": 1.5, "sampling_ratio": 0.1, "contributions": 2}
    records = {**group, "record_sampling_ratio": 0.02, "steps": 3, "participations": 4}
    name = "poisson (up to 2 clients of one person)"
    assert proof.releases_of(records, spec) == [proof.Rounds(1.5, 0.02, name, 12)]
    segments = [{"noise_multiplier": 2.0, "sampling_ratio": 0.3, "rounds": 5}]
    expected = [proof.Rounds(2.0, 0.3, name, 5)]
    assert proof.releases_of({**group, "segments": segments}, spec) == expected


@pytest.mark.parametrize(
    ("rounds", "relation", "delta", "reason"),
    [
        (proof.Rounds(0.0, 0.1, "poisson", 1), "add_remove", 1e-5, "without noise"),
        (proof.Rounds(1.0, 0.1, "unheard_of", 1), "add_remove", 1e-5, "no pair"),
        (proof.Rounds(1.0, 0.1, "poisson", 1), "add_nothing", 1e-5, "no pair"),
        (proof.Rounds(1.0, 0.1, "capped_poisson:9", 2), "replace_one", 1e-5, "no pair"),
        (proof.Rounds(1.0, 0.1, "poisson", 2), "add_remove", 1e-30, "out of range"),
        (proof.Rounds(1.0, 0.5, "full", 2), "add_remove", 1e-5, "no pair"),
        (proof.Rounds(1.0, 0.1, OF_PAIRS, 2), "add_remove", 1e-5, "no pair"),
        (
            proof.Rounds(1.0, 1.0, "full", 1, "no_such_noise"),
            "add_remove",
            1e-5,
            "no pair",
        ),
        (
            proof.Rounds(1.0, 0.1, "poisson", 1, "laplace"),
            "add_remove",
            1e-5,
            "no pair",
        ),
    ],
)
def test_what_has_no_proof_says_so(rounds, relation, delta, reason):
    finding = proof.prove([rounds], relation, 1.0, delta)
    assert finding.outcome.startswith("not proven: ")
    assert reason in finding.outcome


def test_a_guarantee_of_several_runs_is_not_proven():
    row = {"group": "a", "guarantee": True, "accountant": "selection"}
    row |= {"delta": 1e-5, "epsilon_upper": 9.0, "relation": "add_remove"}
    group = {"name": "a", "noise_multiplier": 9.0, "sampling_ratio": 0.1}
    spec = {"sampling": "poisson", "rounds": 2}
    plan = {"spec": spec, "groups": [group], "certificate": [row]}
    ((_, finding),) = proof.proofs(plan)
    assert "selection" in finding.outcome


def test_checks_have_names_of_their_own():
    assert len({check.__name__ for check in CHECKS}) == len(CHECKS)
