"""A small plan, model and data for the tests of ``simulate.train`` and of the shell."""

from functools import cache

import numpy as np
import torch
import yaml
from torch import Tensor, nn

import privplan
import simulate

PARAMETERS = 50
STRICT = 12
CLIENTS = 20
SPEC = f"""
name: clinic
groups:
  - {{name: strict, clients: {STRICT}, epsilon: 4.0}}
  - {{name: loose, clients: {CLIENTS - STRICT}, epsilon: 10.0}}
delta: 1.0e-3
rounds: 5
cohort: 10
clipping_norm: 1.0
local: {{steps: 3, batch_size: 5, learning_rate: 0.1}}
model: {{name: my-net, parameters: {PARAMETERS}}}
planning: {{ratios: noise}}
"""


class Net(nn.Module):
    """Two dense layers with a learned scale between, which is no sequence of layers."""

    def __init__(self, hidden=6, classes=2):
        super().__init__()
        self.first = nn.Linear(4, hidden)
        self.last = nn.Linear(hidden, classes)
        self.scale = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        hidden: Tensor = torch.relu(self.first(x) * self.scale)
        logits: Tensor = self.last(hidden)
        return logits


def plan(folder):
    """The plan of ``SPEC``, solved without knowing the model; its spec in a file."""
    path = folder / "spec.yaml"
    path.write_text(SPEC)
    return _solved()


@cache
def _solved():
    return privplan.solve(yaml.safe_load(SPEC))


def arrays():
    """Records, clients, groups, and labels: the sign of the first column."""
    x = np.random.default_rng(0).normal(size=(400, 4))
    client = np.arange(400) % CLIENTS
    group = np.where(client < STRICT, "strict", "loose")
    return {"x": x, "y": (x[:, 0] > 0).astype(int), "client": client, "group": group}


def data(**changes):
    """``Data`` of these arrays, some of them replaced."""
    return simulate.Data(**{**arrays(), **changes})
