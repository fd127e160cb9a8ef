"""What the replay program shares with a run, and what its comparisons divide by."""

import ast

from tests.simulate.replay.runs import ROOT

PACKAGE = ROOT / "simulate" / "replay"


ALLOWED = (
    "simulate.own_parts",
    "simulate.tasks",  # and which rounds and test records a run is evaluated on
    "privplan.errors",
    "privplan.evidence",
    "privplan.ledger",
    "privplan.plan",
    "privplan.planning.error",  # the plan's factors on sums, as formulas
    "privplan.record",
    "privplan.accounting.release",
    "privplan.discrete_gaussian",  # the sampler of a law and the streams of a key: primitives
    "privplan.streams",
    "privplan.spec.training",  # constants of the server optimisers
    "simulate.data",
    "simulate.models",
    "simulate.replay",
    "simulate.recipe",
    # the model after a release is computed by the function that the training loop uses
    "simulate.postprocessing",
    "simulate.algorithm",
    "simulate.algorithms.registry",
    "simulate.aggregators.WEIGHT",
    "privplan.releases",
)


def test_the_package_imports_no_part_of_the_engine():
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                own = name.partition(".")[0] in ("privplan", "simulate")
                assert not own or name.startswith(ALLOWED), (path.name, name)


OF_THE_RUN = ("model.py", "replay.py", "rounds.py")
"""Files that compute the model, by the one function that the training loop uses, too."""


def test_what_precedes_a_release_shares_nothing_with_the_run():
    """Only the model after a release is computed by the run's own function."""
    names = ("postprocessing", "algorithm", "algorithms", "aggregators")
    shared = [f"from simulate.{name}" for name in names]
    for path in PACKAGE.glob("*.py"):
        text = path.read_text()
        assert path.name in OF_THE_RUN or not any(name in text for name in shared), (
            path.name
        )


def divisors(tree):
    """The expressions by which something is divided, or which scale a tolerance."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield node.right
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(one, ast.Name) and one.id in LIMITS for one in targets):
                yield node.value


LIMITS = ("limit", "unit", "scale", "tolerance")
OF_THE_RUN_S_NUMBERS = {
    "recorded",
    "claimed",
    "run",
    "declared",
    "stored",
    "released",
    "line",
}
"""Names of values that the run wrote, in the files that compare."""
COMPARE = (
    "compare.py",
    "tolerance.py",
    "scores.py",
    "replay.py",
    "sums.py",
    "clients.py",
)


def test_nothing_is_compared_relative_to_a_number_of_the_run():
    for name in COMPARE:
        for found in divisors(ast.parse((PACKAGE / name).read_text())):
            names = {one.id for one in ast.walk(found) if isinstance(one, ast.Name)}
            planned = "line.record" in ast.unparse(
                found
            )  # ``line`` is the planned line there
            bad = names & (OF_THE_RUN_S_NUMBERS - ({"line"} if planned else set()))
            assert not bad, (name, ast.unparse(found))
