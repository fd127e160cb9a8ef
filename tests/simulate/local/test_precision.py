"""Reduced precision of local training: where it is refused, and what it leaves alone."""

from __future__ import annotations

import pytest
import torch

from privplan.errors import InputError
from privplan.plan import Plan
from simulate.algorithms.registry import algorithm
from simulate.engine.experiment import products_in_tf32, with_precision

CUDA = torch.device("cuda")


def _allowed() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


def test_only_local_training_is_wrapped(short_plan: Plan) -> None:
    plain, seen = algorithm("planned", short_plan), []
    spied = with_precision(
        _with_train(plain, lambda batch: seen.append(_allowed())), "tf32", CUDA, "client"
    )
    with products_in_tf32(False):
        spied.local.train(None)
        assert _allowed() == (False, False)
    assert seen == [(True, True)]
    assert spied.transforms == plain.transforms
    assert spied.mechanism == plain.mechanism
    assert with_precision(plain, "float32", CUDA, "client") is plain


def _with_train(plain, train):
    from dataclasses import replace

    return replace(plain, local=replace(plain.local, train=train))


@pytest.mark.parametrize(
    ("precision", "device", "unit", "rule"),
    [
        ("tf32", torch.device("cpu"), "client", "must be float32 on cpu"),
        ("tf32", CUDA, "record", "clips records in local training"),
        ("bf16", CUDA, "client", "must be one of float32, tf32"),
    ],
)
def test_it_is_refused_where_it_has_no_meaning_or_touches_a_bound(
    precision: str, device: torch.device, unit: str, rule: str, short_plan: Plan
) -> None:
    with pytest.raises(InputError, match=rule):
        with_precision(algorithm("planned", short_plan), precision, device, unit)
