"""The corpus: files as documentation and public threads write them, with what lint must find."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.contrib.lint.derived import EDITS, derived

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """A file, the options, the alarms, and the mechanism that its releases really are.

    ``truth`` is (law, noise multiplier, ratio, rounds, delta), accounted by another library.
    """

    file: str
    alarms: tuple[str, ...] = ()
    population: int | None = None
    rounds: int | None = None
    delta: float | None = None
    truth: tuple[str, float, float, int, float] | None = None

    @property
    def of(self) -> str:
        return self.file.partition("_")[0]

    @property
    def path(self) -> Path:
        if self.alarms and self.file in EDITS:
            return derived(self.file)
        return FOLDER / ("broken" if self.alarms else "sound") / self.file


FIXED, POISSON, FULL = "fixed_size", "poisson", "full"
ISSUE = (FIXED, 1.504, 0.02, 50, 6.98e-5)
RECORDS = (POISSON, 1.1, 0.025, 400, 1e-6)
LOCAL = 2 * 4.844805262605572  # sqrt(2 ln(1.25 / 1e-5)), times the sensitivity 2

BROKEN = (
    Case("flower_replace_one.py", ("understated",), truth=ISSUE),
    Case("flower_num_examples.py", ("private-weights",), 1000, None, 1e-5),
    Case("flower_cohort.py", ("cohort-mismatch",), 1000, None, 1e-4,
         (FIXED, 0.3, 0.05, 40, 1e-4)),
    Case("flower_fedadam.py", ("server-step",), 1000, None, 1e-5),
    Case("flower_evaluate.py", ("evaluation",), 500, None, 1e-5, (FIXED, 1.5, 0.1, 25, 1e-5)),
    Case("flower_no_client_mod.py", ("no-clipping",), 100, None, 1e-5),
    Case("flower_modulus.py", ("modulus",), 5000, None, 1e-5, (FIXED, 1.0, 0.4, 10, 1e-5)),
    Case("flower_local_rounds.py", ("understated",), truth=(FULL, 4.844805262605572, 1, 100, 1e-5)),
    Case("flower_project_poisson.toml", ("understated",), 6000, truth=ISSUE),
    Case("flower_dropouts.log", ("cohort-mismatch",)),
    Case("opacus_shuffled.py", ("shuffled",), 10000),
    Case("opacus_clients.py", ("record-level",), 10000, truth=RECORDS),
    Case("opacus_delta.py", ("delta",), 10000, truth=(*RECORDS[:4], 1e-3)),
    Case("opacus_half.py", ("half-precision",), 10000, truth=RECORDS),
    Case("opacus_overrun.py", ("overrun", "understated"), 10000),
    Case("opacus_each_round.py", ("fresh-accountant",)),
    Case("opacus_helper.py", ("fresh-accountant",), 2000),
    Case("pfl_local.py", ("local-noise", "understated"), 100_000),
    Case("pfl_random.py", ("with-replacement",), 2000, None, 1e-5),
    Case("pfl_noise_scale.py", ("noise-scale", "understated"), 100_000),
    Case("pfl_benchmark_small.yaml", ("noise-scale", "understated")),
    Case("nvflare_wrong_way.json", ("unfiltered",), truth=(FULL, 2.6496, 1, 1, 1e-6)),
    Case("nvflare_percentile.json", ("no-noise",)),
    Case("nvflare_svt.py", ("svt-release",), 8),
    Case("nvflare_reset.log", ("fresh-accountant",), 8),
)  # fmt: skip

SOUND = (
    Case("flower_accounted.py", truth=ISSUE),
    Case("flower_legacy_equal_weights.py", (), 1000, None, 1e-5, (FIXED, 2.0, 0.1, 30, 1e-5)),
    Case("flower_more_noise.py", (), 1000, None, 1e-4, (FIXED, 1.2, 0.05, 40, 1e-4)),
    Case("flower_adaptive.py", (), 500, None, 1e-5, (FIXED, 1.5, 0.1, 25, 1e-5)),
    Case("flower_client_mod.py", (), 100, None, 1e-5, (FIXED, 1.0, 0.2, 10, 1e-5)),
    Case("flower_secagg.py", (), 5000, None, 1e-5, (FIXED, 1.0, 0.08, 10, 1e-5)),
    Case("flower_local_once.py", truth=(FULL, LOCAL, 1, 1, 1e-5)),
    Case("flower_project.toml", (), 6000, truth=ISSUE),
    Case("flower_run.log", truth=(FIXED, 2.0, 0.1, 2, 1e-5)),
    Case("opacus_poisson.py", (), 10000, truth=RECORDS),
    Case("opacus_target.py", (), 10000),
    Case("opacus_run.yaml", (), 10000, truth=(POISSON, 1.3, 1 / 157, 785, 1e-5)),
    Case("pfl_poisson.py", (), 100_000),
    Case("pfl_direct.py", (), 2000, None, 1e-5, (FIXED, 2.0, 0.05, 40, 1e-5)),
    Case("pfl_benchmark.yaml"),
    Case("pfl_in_turn.py", (), 1000),
    Case("nvflare_local.json", truth=(FULL, 2.6496, 1, 1, 1e-6)),
    Case("nvflare_svt.py", (), 8),
    Case("nvflare_svt.log", (), 8),
)
