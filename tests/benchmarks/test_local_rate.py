"""The small simulation of benchmarks/local_rate.py: its gradients, and that it learns."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from benchmarks.local_rate import ABSENT, Perceptron, accuracy, plan_of


@pytest.mark.parametrize(("widths", "embedded"), [((80, 16, 80), 8), ((6, 5, 4, 3), 0)])
def test_gradients_are_those_of_autograd(widths, embedded):
    source, net = torch.Generator().manual_seed(3), Perceptron(widths, embedded)
    flat = net.start(source).expand(3, -1).clone().requires_grad_()
    x = torch.randint(0, 80, (3, 4, 10)) if embedded else torch.randn(3, 4, widths[0])
    y = torch.randint(0, widths[-1], (3, 4))
    y[0, 2:] = ABSENT
    logits = net.forward(flat, x)[0][-1]
    loss = sum(cross_entropy(*one, ignore_index=ABSENT) for one in zip(logits, y, strict=True))
    (expected,) = torch.autograd.grad(loss, flat)
    with torch.no_grad():
        net.gradient(flat, x, y, found := torch.zeros_like(flat))
    torch.testing.assert_close(found, expected)


@pytest.mark.slow
def test_digits_are_learned_with_the_noise_of_the_plan():
    plan = plan_of("digits", 3.0, {"steps": 5})
    assert accuracy(plan, "digits", 1.3, 0) > 90
