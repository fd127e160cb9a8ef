"""Broken files of the corpus that differ from a sound one in a line or two."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

SOUND = Path(__file__).parent / "sound"
EDITS: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "flower_cohort.py": (
        "flower_more_noise.py",
        (("num_sampled_clients=50", "num_sampled_clients=200"),),
    ),
    "flower_dropouts.log": ("flower_run.log", (("Received 100 results", "Received 20 results"),)),
    "flower_evaluate.py": (
        "flower_adaptive.py",
        (("fraction_evaluate=0.0", "fraction_evaluate=0.5"),),
    ),
    "flower_local_rounds.py": (
        "flower_local_once.py",
        (("sensitivity=2.0", "sensitivity=1.0"), ("num_rounds=1)", "num_rounds=100)")),
    ),
    "flower_modulus.py": (
        "flower_secagg.py",
        (
            ("fraction_fit=0.08", "fraction_fit=0.4"),
            ("num_sampled_clients=400", "num_sampled_clients=2000"),
        ),
    ),
    "flower_no_client_mod.py": (
        "flower_client_mod.py",
        (
            ("from flwr.client.mod import fixedclipping_mod\n", ""),
            (", mods=[fixedclipping_mod]", ""),
        ),
    ),
    "flower_num_examples.py": (
        "flower_legacy_equal_weights.py",
        (
            ("; every client reports one example.", "."),
            ("(self.net), 1, {}", "(self.net), len(self.trainloader.dataset), {}"),
        ),
    ),
    "flower_project_poisson.toml": (
        "flower_project.toml",
        (("epsilon = 30.17", "epsilon = 0.37"),),
    ),
    "flower_replace_one.py": (
        "flower_accounted.py",
        (
            ("NeighboringRelation.ADD_OR_REMOVE_ONE", "NeighboringRelation.REPLACE_ONE"),
            ("SamplingMethod.NO_AMPLIFICATION", "SamplingMethod.WITHOUT_REPLACEMENT"),
        ),
    ),
    "nvflare_svt.py": ("nvflare_svt.py", ((", epsilon_release=0.4", ""),)),
    "nvflare_wrong_way.json": (
        "nvflare_local.json",
        (
            ('"task_result_filters": [', '"task_data_filters": ['),
            ('"task_data_filters": []', '"task_result_filters": []'),
        ),
    ),
    "opacus_clients.py": (
        "opacus_poisson.py",
        (
            (
                "DP-SGD on tabular records",
                "Client-level differential privacy for hospitals with DP-SGD",
            ),
        ),
    ),
    "opacus_delta.py": ("opacus_poisson.py", (("DELTA = 1e-6", "DELTA = 1e-3"),)),
    "opacus_half.py": (
        "opacus_poisson.py",
        (("optimizer = torch", "model = model.half()\noptimizer = torch"),),
    ),
    "opacus_overrun.py": ("opacus_target.py", (("load(), 20)", "load(), 60)"),)),
    "opacus_shuffled.py": (
        "opacus_poisson.py",
        (("max_grad_norm=1.0,", "max_grad_norm=1.0,\n    poisson_sampling=False,"),),
    ),
    "pfl_benchmark_small.yaml": (
        "pfl_benchmark.yaml",
        (("cohort_size: 400", "cohort_size: 50"),),
    ),
    "pfl_local.py": (
        "pfl_poisson.py",
        (
            ("CentrallyAppliedPrivacyMechanism(\n    Gaussian", "Gaussian"),
            ("clipping_bound=0.4)\n)", "clipping_bound=0.4)"),
        ),
    ),
    "pfl_noise_scale.py": (
        "pfl_poisson.py",
        (("delta=1e-6,", "delta=1e-6,\n    noise_scale=0.1,"),),
    ),
}
"""The sound file, and what is replaced in it, the first time that it occurs."""


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


@cache
def derived(name: str) -> Path:
    """A broken file of ``EDITS``, written to a temporary folder."""
    base, edits = EDITS[name]
    text = (SOUND / base).read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    path = Path(_folder().name) / name
    path.write_text(text)
    return path
