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
    # the sampler of a law and the streams of a key: primitives
    "privplan.discrete_gaussian",
    "privplan.streams",
    "privplan.secure_stream",
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
"""Beginnings of the names that the package may import."""


def imported_names(tree):
    """Full names of what a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_package_imports_no_part_of_the_engine():
    for path in PACKAGE.glob("*.py"):
        for name in imported_names(ast.parse(path.read_text())):
            is_ours = name.partition(".")[0] in ("privplan", "simulate")
            assert not is_ours or name.startswith(ALLOWED), (path.name, name)


COMPUTE_THE_MODEL = ("model.py", "model_scores.py", "replay.py", "rounds.py")
"""Files that use the one function for the model that the training loop uses, too."""
SHARED_WITH_A_RUN = ("postprocessing", "algorithm", "algorithms", "aggregators")


def test_what_precedes_a_release_shares_nothing_with_the_run():
    """Only the model after a release is computed by the run's own function."""
    imports = [f"from simulate.{name}" for name in SHARED_WITH_A_RUN]
    for path in PACKAGE.glob("*.py"):
        text = path.read_text()
        is_shared = any(statement in text for statement in imports)
        assert path.name in COMPUTE_THE_MODEL or not is_shared, path.name


LIMITS = ("limit", "unit", "noise_norm", "scale", "tolerance")
"""Names of what a distance is divided by or compared with."""


def divisors(tree):
    """The expressions by which something is divided, or which scale a tolerance."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield node.right
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            if any(name in LIMITS for name in names):
                yield node.value


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
    "model_scores.py",
    "replay.py",
    "sums.py",
    "clients.py",
)


def test_nothing_is_compared_relative_to_a_number_of_the_run():
    for file_name in COMPARE:
        tree = ast.parse((PACKAGE / file_name).read_text())
        for divisor in divisors(tree):
            names = {
                node.id for node in ast.walk(divisor) if isinstance(node, ast.Name)
            }
            forbidden = OF_THE_RUN_S_NUMBERS
            if "line.record" in ast.unparse(divisor):
                # ``line`` is the planned line there.
                forbidden = forbidden - {"line"}
            assert not names & forbidden, (file_name, ast.unparse(divisor))
