"""How near a reconstruction is to its original: PSNR, SSIM, re-identification; null rows.

Images are pixels in [0, 1], shape [n, channels, height, width].
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.special import betaincinv, stdtrit
from torch import Tensor

from privplan.accounting.accountant import accountant
from privplan.plan import GroupPlan, Plan
from privplan.streams import Purpose, stream
from simulate.algorithms.registry import ALGORITHMS
from simulate.attacks.view import truth_of, white
from simulate.data.dataset import Dataset

LARGEST_PSNR = (
    100.0  # PSNR of an exact reconstruction, in dB, so that means stay finite
)
CANDIDATES = 1000  # candidates of a re-identification, the original among them
NOT_AVAILABLE = "not available"


def psnr(images: Tensor, originals: Tensor) -> np.ndarray:
    """Peak signal-to-noise ratio in dB [n], at most ``LARGEST_PSNR``."""
    errors = (images.double() - originals.double()).square().flatten(1).mean(1).numpy()
    decibels: np.ndarray = -10 * np.log10(
        np.maximum(errors, 10 ** (-LARGEST_PSNR / 10))
    )
    return decibels


def ssim(images: Tensor, originals: Tensor) -> np.ndarray | None:
    """Structural similarity [n] by scikit-image (7x7 windows); None when it is not installed."""
    if importlib.util.find_spec("skimage") is None:
        return None
    from skimage import metrics

    similarity: Callable[..., float] = metrics.structural_similarity
    pairs = zip(images.double().numpy(), originals.double().numpy(), strict=True)
    return np.array(
        [similarity(*pair, data_range=1.0, channel_axis=0) for pair in pairs]
    )


@dataclass(frozen=True)
class Candidates:
    """Public images among which an original is looked for."""

    # pixels of images that are no originals [n, ...]; ``CANDIDATES`` - 1, fewer where the data set
    # has no more
    images: Tensor

    @property
    def mean(self) -> Tensor:
        """The mean image [channels, height, width]."""
        return self.images.mean(0)

    def identified(self, images: Tensor, originals: Tensor) -> np.ndarray:
        """Whether each original is strictly nearer than all other candidates, in L2 [n]."""
        others = self.images[: CANDIDATES - 1].flatten(1)
        distances = torch.cdist(images.flatten(1), others).min(1).values
        own = (images - originals).flatten(1).norm(dim=1)
        nearest: np.ndarray = (own < distances).numpy()
        return nearest

    def chance(self, originals: Sequence[Tensor]) -> float:
        """Chance of a blind guess, m / (m + candidates) for m originals, the mean over releases."""
        return float(
            np.mean([len(one) / (len(one) + len(self.images)) for one in originals])
        )


def candidates(data: Dataset, exclude: np.ndarray, seed: int) -> Candidates:
    """Candidates from the training records without the attacked ones, then from the test set."""
    drawn = stream(seed, Purpose.OWN_TEST, 18).permutation(len(data.train_y))
    chosen = drawn[~np.isin(drawn, exclude)][: CANDIDATES - 1]
    found = truth_of(data, chosen).images
    further = data.test_x[: CANDIDATES - 1 - len(chosen)].float() / white(data)
    return Candidates(torch.cat([found, further]))


def matched(images: Tensor, originals: Tensor) -> Tensor:
    """The originals in the order that is nearest to the images, in mean squared error."""
    if len(images) == len(originals) == 1:
        return originals
    costs = torch.cdist(images.flatten(1), originals.flatten(1)).square().numpy()
    rows, columns = linear_sum_assignment(costs)
    return originals[torch.from_numpy(columns[np.argsort(rows)])]


@dataclass(frozen=True)
class Scores:
    """Scores of several reconstructions."""

    psnr: np.ndarray  # PSNR in dB [n]
    ssim: np.ndarray | None  # SSIM [n]; None when scikit-image is not installed
    identified: np.ndarray  # whether the original is the nearest candidate [n]
    chance: float = 1 / CANDIDATES  # rate of re-identification by blind guesses

    def summary(self) -> dict[str, Any]:
        """Means with 95% intervals as plain data."""
        hits, trials = int(self.identified.sum()), len(self.identified)
        return {
            "n": trials,
            "psnr": mean_interval(self.psnr),
            "above_20_db": float((self.psnr > 20).mean()),
            "ssim": NOT_AVAILABLE if self.ssim is None else mean_interval(self.ssim),
            "identified": [hits / trials, *clopper_pearson(hits, trials)],
            "chance": self.chance,
        }


def scores(
    images: Sequence[Tensor], originals: Sequence[Tensor], among: Candidates
) -> Scores:
    """Scores of the reconstructions of several releases."""
    chance = among.chance(originals)
    originals = [matched(*pair) for pair in zip(images, originals, strict=True)]
    found, true = torch.cat(list(images)).cpu(), torch.cat(originals).cpu()
    return Scores(
        psnr(found, true), ssim(found, true), among.identified(found, true), chance
    )


def mean_interval(values: np.ndarray) -> list[float | None]:
    """Mean and its 95% interval by Student's t: [mean, low, high]; one value has no interval."""
    mean = float(values.mean())
    if len(values) < 2:
        return [mean, None, None]
    width = float(stdtrit(len(values) - 1, 0.975)) * float(values.std(ddof=1))
    width /= math.sqrt(len(values))
    return [mean, mean - width, mean + width]


def clopper_pearson(hits: int, trials: int) -> tuple[float, float]:
    """Exact 95% interval of a binomial rate (Clopper and Pearson 1934)."""
    low = float(betaincinv(hits, trials - hits + 1, 0.025)) if hits else 0.0
    high = float(betaincinv(hits + 1, trials - hits, 0.975)) if hits < trials else 1.0
    return low, high


OTHER = "another image's update"
"""Null row of the same attack: reconstructions are compared with the records of other releases."""


def null_scores(
    images: Sequence[Tensor], originals: Sequence[Tensor], among: Candidates, seed: int
) -> dict[str, Scores]:
    """Scores of attacks that see nothing of the records, by name."""
    mean = [among.mean.expand_as(one) for one in images]
    noise = [
        torch.rand(
            one.shape, generator=torch.Generator().manual_seed((seed + index) % 2**64)
        )
        for index, one in enumerate(images)
    ]
    rows = {
        "mean image": scores(mean, originals, among),
        "noise": scores(noise, originals, among),
    }
    if len(images) > 1:
        rows[OTHER] = scores([*images[1:], images[0]], originals, among)
    return rows


def better(attack: Scores, nulls: dict[str, Scores]) -> list[str]:
    """Measures by which an attack is better than every null row.

    Better means: the lower end of the 95% interval of the mean paired difference to each null row
    is above zero, which a single image never shows; for re-identification, the lower end of the
    attack's interval is above chance and above every null row's rate.
    """
    found = []
    if all(_above(attack.psnr, null.psnr) for null in nulls.values()):
        found.append("psnr")
    if attack.ssim is not None and all(
        null.ssim is not None and _above(attack.ssim, null.ssim)
        for null in nulls.values()
    ):
        found.append("ssim")
    rates = [float(null.identified.mean()) for null in nulls.values()]
    low, _ = clopper_pearson(int(attack.identified.sum()), len(attack.identified))
    if low > max([attack.chance, *rates]):
        found.append("identified")
    return found


def _above(values: np.ndarray, null: np.ndarray) -> bool:
    low = mean_interval(values - null)[1]
    return low is not None and low > 0


# --- What the executed plan guarantees to the attacked group, for each row of a report. ----------


def with_noise(group: GroupPlan, factor: float) -> GroupPlan:
    """A group with a factor on its planned noise multiplier."""
    if factor == 1.0:
        return group
    sigma = group.noise_multiplier * factor
    return group.model_copy(update={"noise_multiplier": sigma, "segments": None})


def guarantee(
    name: str, plan: Plan, group: GroupPlan, factor: float = 1.0
) -> dict[str, Any]:
    """Unit, noise multiplier and epsilon of a group under the executed plan, as plain data."""
    unit = ALGORITHMS.get(name).unit_under(plan)
    own = plan.group(group.name)
    if unit == "none":
        return {
            "unit": "none",
            "noise_multiplier": 0.0,
            "epsilon": "inf",
            "delta": own.delta,
        }
    sigma = own.noise_multiplier * factor
    if factor == 1.0:
        bounds = [
            (one.epsilon_upper, one.accountant)
            for one in plan.certificate
            if one.group == own.name and one.guarantee
        ]
        epsilon, by = min(bounds, default=(math.inf, "none"))
    else:
        history = plan.history(with_noise(own, factor))
        epsilon, by = (
            accountant("rdp").epsilon(history, own.delta, plan.spec.relation).upper,
            "rdp",
        )
    return {
        "unit": unit,
        "noise_multiplier": sigma,
        "epsilon": "inf" if math.isinf(epsilon) else epsilon,
        "delta": own.delta,
        "group": own.name,
        "sampling": str(plan.law_of(own)),
        "relation": str(plan.spec.relation),
        "accountant": by,
    }
