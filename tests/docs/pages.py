"""What each page of the documentation needs so that its blocks can be executed.

Blocks of a page are executed in their order, in one folder. ``sh`` and ``console``
blocks: lines of ``privplan`` in this process, those of ``python`` and ``torchrun`` as
processes; ``make`` is checked against the Makefile. ``python`` blocks: in one
namespace, or written to the file that follows the word. ``yaml`` blocks: parsed, and
written to that file or to ``spec.yaml``. ``toml`` blocks: entry points of registries of
the project. ``json`` blocks: parsed, and written.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import default_rng

DIGITS = ("init --preset digits -o spec.yaml", "solve spec.yaml -o plan.json")
PLANNED = ("init --preset digits-planned -o spec.yaml", DIGITS[1])
SHORT = {"rounds: 60 ": "rounds: 3 ", "rounds: 50 ": "rounds: 2 "}
"""Edits of ``spec.yaml`` that make the runs of a page short."""


@dataclass(frozen=True)
class Page:
    """How a page is executed."""

    before: tuple[str, ...] = ()  # commands of privplan before the first block
    # replacements in spec.yaml, applied before each command
    edits: Mapping[str, str] = field(default_factory=dict)
    # replacements in the text of commands, for sizes only
    words: Mapping[str, str] = field(default_factory=dict)
    # makes names for python blocks, given the folder
    names: Callable[[Path], dict[str, Any]] | None = None
    # accepted exit codes of commands that start with these words; 0 otherwise
    codes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    slow: bool = False  # whether the page trains on made-up images, for long
    needs: str = ""  # a package without which the page is skipped
    # what python blocks print; empty: the indented lines of the page
    prints: str | None = None


ELSEWHERE = {
    "CONTRIBUTING.md": "test_contributing.py",
    "docs/attestation.md": "../contrib/attestation/test_runs.py",
    "docs/pretraining.md": "test_recipe.py",
    "docs/recipe.md": "test_recipe.py",
    "docs/evidence/recipe.md": "test_recipe.py",
    "docs/sensitivity-tests.md": "../contrib/sensitivity/test_sensitivity.py",
}
"""Pages whose blocks another test executes."""


def write_idx(folder, name, train, test):
    """Random images in the layout of MNIST, for pages that name its data sets."""
    generator = default_rng(0)
    target = folder / name / "raw"
    target.mkdir(parents=True)
    for split, count in (("train", train), ("t10k", test)):
        pixels = generator.integers(0, 256, (count, 28, 28), np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for kind, values in (("images-idx3", pixels), ("labels-idx1", labels)):
            head = bytes([0, 0, 8, values.ndim])
            sizes = b"".join(int(length).to_bytes(4, "big") for length in values.shape)
            (target / f"{split}-{kind}-ubyte").write_bytes(
                head + sizes + values.tobytes()
            )


def _tracking(folder):
    import privplan
    import simulate

    x = default_rng(0).normal(size=(300, 1, 8, 8)).astype(np.float32)
    group = np.array(["strict", "medium", "loose"])[np.arange(300) // 100]
    plan = privplan.Plan.load(folder / "plan.json")
    test = simulate.Data(x[:50], np.arange(50) % 10)
    data = simulate.Data(
        x, np.arange(300) % 10, client=np.arange(300), group=group, test=test
    )
    return {"plan": plan, "data": data}


def _models(folder):
    import torch

    return {
        "generator": torch.Generator().manual_seed(0),
        "images": torch.zeros(1, 3, 32, 32),
    }


def _guarded(folder):
    from tests.guard.plans import two_groups

    two_groups().save(folder / "plan.json")
    return {}


def _view(folder):
    import privplan
    from simulate.attacks.settings import PlanRound
    from simulate.data.registry import load

    plan = privplan.Plan.load(folder / "plan.json")
    return {"view": PlanRound(plan, "HyperFL", load("digits"), images=1)[0].view}


PLAIN = (
    "concepts/certificate",
    "concepts/ledger",
    "concepts/relation",
    "concepts/release",
    "concepts/sampling-law",
    "algorithms",
    "api",
    "citing",
    "correlated-noise",
    "data",
    "index",
    "own-data",
    "reference/data-options",
    "tutorials/flower",
)
SECONDS = (
    "adapters",
    "api",
    "attacks",
    "budgets",
    "evidence/correlated-noise",
    "evidence/reproduction",
    "own-data",
    "reference/hospitals",
    "replay",
    "report",
    "tracking",
    "tutorials/meeting",
    "tutorials/own-data",
)
"""Pages without such images that take several seconds: with the slow tests, too."""
RUN = "simulate plan.json --algorithm planned --device cpu --seed 1 -o run"
PAGES = {
    "README.md": Page(
        edits={"rounds: 60": "rounds: 2"},
        words={"--seeds 2": "--seeds 1"},
        codes={"solve spec.yaml --from-book": (0, 3)},
        slow=True,
    ),
    "docs/accounting.md": Page(needs="opacus"),
    "docs/adapters.md": Page(
        names=_guarded, codes={"export plan.json --to opacus": (2,)}, prints="True ()\n"
    ),
    "docs/attacks.md": Page(
        before=DIGITS, words={"--steps 50": "--steps 2", "--images 10": "--images 3"}
    ),
    "docs/book.md": Page(
        before=(*DIGITS, RUN), edits=SHORT, codes={"solve": (0, 3), "book left": (0, 3)}
    ),
    "docs/proof.md": Page(before=DIGITS[:1], needs="flint"),
    "docs/publishing.md": Page(
        before=(*DIGITS, RUN), edits=SHORT, codes={"verify bundle": (5,)}
    ),
    "docs/budgets.md": Page(
        before=PLANNED,
        words={"commit RESERVATION --plan plan.json --rounds 30 --population hospital": "budgets"},
    ),
    "docs/compare.md": Page(edits=SHORT, words={"--seeds 3": "--seeds 1"}, slow=True),
    **{f"docs/{name}.md": Page() for name in PLAIN},
    "docs/evidence/compare-tuned.md": Page(
        before=DIGITS, edits=SHORT, words={"--trials 12": "--trials 2 --seeds 1"}, slow=True
    ),
    "docs/evidence/correlated-noise.md": Page(
        words={"--seeds 5 --kinds correlated,correlated-eps60 --data-dir DATA": "--help",
               "--rounds 50 --sampling balls_in_bins:50:50:50":
               "--rounds 4 --sampling balls_in_bins:4:4:4",
               "--rounds 50 --sampling cyclic_allocation:5:10:50":
               "--rounds 4 --sampling cyclic_allocation:2:2:4"}
    ),
    "docs/evidence/gdpfed-readings.md": Page(edits={"rounds: 50 ": "rounds: 1 "}, slow=True),
    "docs/evidence/planning.md": Page(
        words={"--seeds 5 --data-dir DATA --draw accuracy-by-split.png": "--help"}, slow=True
    ),
    "docs/guard.md": Page(prints=""),
    "docs/evidence/hyperfl.md": Page(before=DIGITS, names=_view),
    "docs/inverse.md": Page(slow=True),
    "docs/lint.md": Page(words={"server.py": "--help", "train.py": "--help"}),
    "docs/models.md": Page(names=_models),
    "docs/reference/hospitals.md": Page(),
    "docs/reference/own-method.md": Page(edits=SHORT, slow=True),
    "docs/planning.md": Page(slow=True),
    "docs/replay.md": Page(before=DIGITS, edits=SHORT),
    "docs/evidence/reproduction.md": Page(),
    "docs/report.md": Page(before=(*DIGITS, RUN), edits=SHORT),
    "docs/scale.md": Page(
        before=DIGITS,
        edits=SHORT,
        words={"--algorithms all --seeds 5": "--algorithms FedAvg,planned --seeds 1",
               "--jobs 8": "--jobs 2",
               "--nproc-per-node 4": "--nproc-per-node 2"},
        slow=True,
    ),
    "docs/threat-model.md": Page(edits=SHORT),
    "docs/tracking.md": Page(before=DIGITS, edits=SHORT, names=_tracking),
    "docs/tutorials/first-plan.md": Page(edits=SHORT, codes={"verify": (0, 2, 4)}),
    "docs/tutorials/meeting.md": Page(edits={"rounds: 60\n": "rounds: 2\n"}),
    "docs/tutorials/own-data.md": Page(codes={"verify": (5,)}),
}  # fmt: skip
"""Pages with blocks; a page that is in neither table fails the test."""
