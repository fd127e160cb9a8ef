"""How near a reconstruction is to its original: PSNR, SSIM, LPIPS, re-identification.

Null rows are scores of attacks that see nothing. Images are pixels in [0, 1], shape [n,
channels, height, width].
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

from privplan.streams import Purpose, stream
from simulate.attacks.lpips import Lpips
from simulate.attacks.view import truth_of, white
from simulate.data.dataset import Dataset

# PSNR of an exact reconstruction, in dB, so that means stay finite.
LARGEST_PSNR = 100.0
CANDIDATES = 1000  # candidates of a re-identification, the original among them
NOT_AVAILABLE = "not available"
# A reconstruction from which people recognise the image, in dB.
_RECOGNISED_PSNR = 20
_TAIL = 0.025  # on each side of a 95% interval


def psnr(images: Tensor, originals: Tensor) -> np.ndarray:
    """Peak signal-to-noise ratio in dB [n], at most ``LARGEST_PSNR``."""
    differences = images.double() - originals.double()
    errors = differences.square().flatten(1).mean(1).numpy()
    lowest_error = 10 ** (-LARGEST_PSNR / 10)
    decibels: np.ndarray = -10 * np.log10(np.maximum(errors, lowest_error))
    return decibels


def ssim(images: Tensor, originals: Tensor) -> np.ndarray | None:
    """Structural similarity [n] by scikit-image (7x7 windows); None without it."""
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
    """Public images among which an original is looked for.

    Attributes:
        images: pixels of images that are no originals [n, ...]; ``CANDIDATES`` - 1,
            fewer where the data set has no more.
    """

    images: Tensor

    @property
    def mean(self) -> Tensor:
        """The mean image [channels, height, width]."""
        return self.images.mean(0)

    def identified(self, images: Tensor, originals: Tensor) -> np.ndarray:
        """Whether each original is nearer in L2 than all other candidates [n]."""
        candidates = self.images[: CANDIDATES - 1].flatten(1)
        nearest = torch.cdist(images.flatten(1), candidates).min(1).values
        distances = (images - originals).flatten(1).norm(dim=1)
        return np.asarray(distances < nearest)

    def chance(self, originals: Sequence[Tensor]) -> float:
        """Chance of a blind guess: m / (m + candidates) for m originals of a release.

        The mean over the releases.
        """
        counts = np.array([len(records) for records in originals])
        return float(np.mean(counts / (counts + len(self.images))))


def candidates(data: Dataset, exclude: np.ndarray, seed: int) -> Candidates:
    """Candidates from training records that are not attacked, then test records."""
    drawn = stream(seed, Purpose.OWN_TEST, 18).permutation(len(data.train_y))
    rows = drawn[~np.isin(drawn, exclude)][: CANDIDATES - 1]
    images = truth_of(data, rows).images
    further = data.test_x[: CANDIDATES - 1 - len(rows)].float() / white(data)
    return Candidates(torch.cat([images, further]))


def matched(images: Tensor, originals: Tensor) -> Tensor:
    """The originals in the order that is nearest to the images, in squared error."""
    if len(images) == len(originals) == 1:
        return originals
    costs = torch.cdist(images.flatten(1), originals.flatten(1)).square().numpy()
    rows, columns = linear_sum_assignment(costs)
    return originals[torch.from_numpy(columns[np.argsort(rows)])]


@dataclass(frozen=True)
class Scores:
    """Scores of several reconstructions.

    Attributes:
        psnr: in dB [n].
        ssim: [n]; None when scikit-image is not installed.
        identified: whether the original is the nearest candidate [n].
        chance: rate of re-identification by blind guesses.
        lpips: distances [n]; None where nobody asked for them.
    """

    psnr: np.ndarray
    ssim: np.ndarray | None
    identified: np.ndarray
    chance: float = 1 / CANDIDATES
    lpips: np.ndarray | None = None

    def summary(self) -> dict[str, Any]:
        """Means with 95% intervals as plain data."""
        hits = int(self.identified.sum())
        trials = len(self.identified)
        distances = {} if self.lpips is None else {"lpips": mean_interval(self.lpips)}
        return {
            "n": trials,
            "psnr": mean_interval(self.psnr),
            "above_20_db": float((self.psnr > _RECOGNISED_PSNR).mean()),
            "ssim": NOT_AVAILABLE if self.ssim is None else mean_interval(self.ssim),
            **distances,
            "identified": [hits / trials, *clopper_pearson(hits, trials)],
            "chance": self.chance,
        }


def scores(
    images: Sequence[Tensor],
    originals: Sequence[Tensor],
    among: Candidates,
    lpips: Lpips | None = None,
) -> Scores:
    """Scores of the reconstructions of several releases, with LPIPS if it is given."""
    chance = among.chance(originals)
    pairs = zip(images, originals, strict=True)
    true_images = torch.cat([matched(*pair) for pair in pairs]).cpu()
    guesses = torch.cat(list(images)).cpu()
    return Scores(
        psnr(guesses, true_images),
        ssim(guesses, true_images),
        among.identified(guesses, true_images),
        chance,
        None if lpips is None else lpips(guesses, true_images),
    )


def mean_interval(values: np.ndarray) -> list[float | None]:
    """Mean and its 95% interval by Student's t: [mean, low, high].

    One value has no interval.
    """
    mean = float(values.mean())
    if len(values) < 2:
        return [mean, None, None]
    quantile = float(stdtrit(len(values) - 1, 1 - _TAIL))
    half_width = quantile * float(values.std(ddof=1)) / math.sqrt(len(values))
    return [mean, mean - half_width, mean + half_width]


def clopper_pearson(hits: int, trials: int) -> tuple[float, float]:
    """Exact 95% interval of a binomial rate (Clopper and Pearson 1934)."""
    low = 0.0
    high = 1.0
    if hits:
        low = float(betaincinv(hits, trials - hits + 1, _TAIL))
    if hits < trials:
        high = float(betaincinv(hits + 1, trials - hits, 1 - _TAIL))
    return low, high


ANOTHER_IMAGE = "another image's update"
"""Null row of the same attack: its guesses against records of other releases."""


def null_scores(
    images: Sequence[Tensor],
    originals: Sequence[Tensor],
    among: Candidates,
    seed: int,
    lpips: Lpips | None = None,
) -> dict[str, Scores]:
    """Scores of attacks that see nothing of the records, by name."""
    mean = [among.mean.expand_as(guesses) for guesses in images]
    noise = []
    for index, guesses in enumerate(images):
        generator = torch.Generator().manual_seed((seed + index) % 2**64)
        noise.append(torch.rand(guesses.shape, generator=generator))
    rows = {
        "mean image": scores(mean, originals, among, lpips),
        "noise": scores(noise, originals, among, lpips),
    }
    if len(images) > 1:
        next_images = [*images[1:], images[0]]
        rows[ANOTHER_IMAGE] = scores(next_images, originals, among, lpips)
    return rows


def better(attack: Scores, nulls: dict[str, Scores]) -> list[str]:
    """Measures by which an attack is better than every null row.

    Better means: the lower end of the 95% interval of the mean paired difference to
    each null row is above zero, which a single image never shows; for
    re-identification, the lower end of the attack's interval is above chance and above
    every null row's rate.
    """
    measures = []
    if all(_is_above(attack.psnr, null.psnr) for null in nulls.values()):
        measures.append("psnr")
    if all(_is_above(attack.ssim, null.ssim) for null in nulls.values()):
        measures.append("ssim")
    # Of a distance, less is better.
    if all(_is_above(null.lpips, attack.lpips) for null in nulls.values()):
        measures.append("lpips")
    rates = [float(null.identified.mean()) for null in nulls.values()]
    low, _ = clopper_pearson(int(attack.identified.sum()), len(attack.identified))
    if low > max([attack.chance, *rates]):
        measures.append("identified")
    return measures


def _is_above(values: np.ndarray | None, null: np.ndarray | None) -> bool:
    """Whether values are above those of a null row on average, by their interval."""
    if values is None or null is None:
        return False
    _, low, _ = mean_interval(values - null)
    return low is not None and low > 0
