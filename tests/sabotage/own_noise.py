"""Faults of clients who protect their records themselves, by DP-SGD."""

import importlib
from dataclasses import replace

import numpy as np
import torch

from simulate.local.dp_sgd import clipped_sums
from simulate.mechanisms import RecordNoise
from tests.sabotage.fault import Fault, with_components

DP_SGD = importlib.import_module("simulate.local.dp_sgd")
"""The module whose functions the faults replace."""
LOOSE = 100  # factor on the clipping norm that lets every gradient through


class Unused(RecordNoise):
    """Noise that is drawn and counted, and not added."""

    def like(self, sums):
        """Zero."""
        return torch.zeros_like(super().like(sums))


def unclipped(*gradients, clipping_norm, **options):
    """Sums of whole gradients under the evidence of clipped ones."""
    honest = clipped_sums(*gradients, clipping_norm=clipping_norm, **options)
    loose = clipped_sums(*gradients, clipping_norm=LOOSE * clipping_norm, **options)
    return honest._replace(total=loose.total)


def _by_own_records(experiment):
    """Steps are divided by what the client holds, and so tell how much that is."""
    local = experiment.algorithm.local

    def train(batch):
        releases = local.train(batch)
        factors = np.float32((batch.group.records or 1) / batch.records)
        return replace(
            releases, updates=releases.updates * torch.from_numpy(factors)[:, None]
        )

    return with_components(experiment, local=replace(local, train=train))


OWN_NOISE = (
    Fault(
        "records' noise drawn and not added",
        "Clients step by clipped sums alone, under the evidence of honest noise.",
        check="sums",
        words="beside its noise",
        patches=((DP_SGD, "RecordNoise", Unused),),
        algorithm="DPFedAvg",
    ),
    Fault(
        "records not clipped",
        "Clients step by sums of whole gradients, under the evidence of clipped ones.",
        check="sums",
        words="beside its noise",
        patches=((DP_SGD, "clipped_sums", unclipped),),
        algorithm="DPFedAvg",
    ),
    Fault(
        "steps divided by the client's own records",
        "The noise shrinks with the number of records that a client holds, which is private.",
        check="sums",
        words="beside its noise",
        breaks=_by_own_records,
        algorithm="DPFedAvg",
    ),
)
