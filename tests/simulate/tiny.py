"""A world to compute by hand: two parameters, two groups, two clients each.

Client i holds one image of one pixel. Its update is (3, 4) times the pixel, so its norm
is five times the pixel.
"""

import numpy as np
import torch

from privplan.plan import GroupPlan, ObjectiveValue, Plan
from privplan.spec.spec import Spec
from privplan.streams import Purpose, private_seed, stream
from simulate.components import LocalResult, LocalRule
from simulate.data.dataset import Dataset
from simulate.data.partition.clients import Partition
from simulate.engine.experiment import Experiment
from simulate.engine.loop import initial_state, run_round
from simulate.models.chain import Chain
from simulate.models.layers import Linear
from simulate.runs.ledger_writer import MemoryLedger

NORM = 5.0
NETWORK = Chain(name="tiny", input_shape=(1, 1, 1), classes=1, layers=(Linear(1, 1),))
SIGMAS = (2.0, 0.5)
WEIGHTS = (0.25, 0.75)


def spec(**changes):
    """Everybody takes part, for three rounds."""
    data = {
        "name": "tiny",
        "groups": [
            {"name": "strict", "clients": 2, "epsilon": 1.0},
            {"name": "loose", "clients": 2, "epsilon": 2.0},
        ],
        "delta": 0.01,
        "rounds": 3,
        "cohort": 4,
        "sampling": "full",
        "clipping_norm": NORM,
        "local": {
            "steps": 1,
            "batch_size": 1,
            "learning_rate": 1.0,
            "learning_rate_decay": 0.5,
        },
        "model": {"name": "tiny", "parameters": 2},
    }
    return Spec.parse({**data, **changes})


def plan(
    *,
    release="per_group",
    scales=(1.0, 1.0),
    sigmas=SIGMAS,
    kept_fraction=1.0,
    **changes,
):
    """A plan with the numbers of this file; it carries no certificate."""
    the_spec = spec(**changes)
    groups = [
        GroupPlan(
            name=group.name,
            clients=2,
            epsilon=group.epsilon,
            delta=0.01,
            sampling_ratio=1.0,
            expected_cohort=2.0,
            noise_multiplier=sigma,
            kept_fraction=kept_fraction,
            weight=weight,
            scale=scale,
        )
        for group, sigma, weight, scale in zip(
            the_spec.groups, sigmas, WEIGHTS, scales, strict=True
        )
    ]
    return Plan(
        spec=the_spec,
        release=release,
        groups=tuple(groups),
        objective=ObjectiveValue(name="given", value=0.0),
        bound={},
        mean_noise_std=0.0,
        status="given",
        certificate=(),
    )


def three_four(work):
    """The update: (3, 4) times the pixel times the learning rate, infinite for 255."""
    pixel = work.x.flatten(1)[:, :1] * work.learning_rate
    return LocalResult(
        torch.where(pixel >= 255, torch.inf, pixel) * torch.tensor([[3.0, 4.0]])
    )


LOCAL = LocalRule("three-four", three_four)


def setting(algorithm, pixels=(1, 2, 1, 4), seed=7):
    """Clients 0 and 1 are strict, 2 and 3 are loose, with these pixels."""
    images = torch.tensor(pixels, dtype=torch.uint8).view(-1, 1, 1, 1)
    labels = torch.zeros(len(pixels), dtype=torch.int64)
    data = Dataset(
        "pixels", images, labels, images, labels, ("only",), mean=0.0, std=1.0
    )
    partition = Partition(
        np.arange(4), np.arange(5), (np.array([0, 1]), np.array([2, 3]))
    )
    return Experiment(algorithm, NETWORK, data, partition, seed, torch.device("cpu"))


def one_round(setting):
    """The step of the first round, its releases, and where training stands then."""
    ledger = MemoryLedger(setting.algorithm.plan.digest)
    begin = initial_state(setting)
    end = run_round(setting, begin, ledger)
    return (end.theta - begin.theta).numpy(), ledger.records, end


def noise(plan, release, std, size=2, round_=1, seed=7):
    """The noise of a release, from its documented stream."""
    seed = private_seed(seed, plan.spec_digest)
    return std * stream(seed, Purpose.NOISE, round_, release).standard_normal(size)
