"""Random shifts and flips: what they do, how often, and that a client decides them."""

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from privplan.errors import InputError
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.spec.training import Augmentation
from privplan.streams import Purpose, streams
from simulate.algorithms.registry import ALGORITHMS
from simulate.data.augmentation import augmented
from simulate.engine.round import RoundContext, client_batch
from simulate.replay.replay import Replay
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.simulate import small


def moved(image, down, right, mirrored):
    """A picture moved by padding and cutting: another way to the same pixels."""
    wide = np.pad(image, ((0, 0), (9, 9), (9, 9)), mode="edge")
    height, width = image.shape[1:]
    cut = wide[:, 9 + down : 9 + down + height, 9 + right : 9 + right + width]
    return cut[..., ::-1] if mirrored else cut


def changed(x, rule, seed=3):
    return augmented(
        x, rule, streams(seed, Purpose.AUGMENTATION, 1, clients=np.arange(len(x)))
    )


IMAGES = 10 * 4 * 15


def test_every_image_is_moved_and_mirrored_as_a_whole_and_all_ways_are_as_likely():
    x = torch.rand(10, 4, 15, 2, 4, 5, generator=torch.Generator().manual_seed(0))
    results = changed(x, Augmentation(shift=1, flip=0.25)).flatten(0, 2).numpy()
    moves = list(product((-1, 0, 1), (-1, 0, 1), (False, True)))
    counts = Counter()
    for image, result in zip(x.flatten(0, 2).numpy(), results, strict=True):
        [move] = [move for move in moves if np.array_equal(moved(image, *move), result)]
        counts[move] += 1
    # Five standard deviations of a binomial count.
    for move in moves:
        chance = (0.25 if move[2] else 0.75) / 9
        deviation = (IMAGES * chance * (1 - chance)) ** 0.5
        assert abs(counts[move] - IMAGES * chance) < 5 * deviation


def with_rule(plan, rule):
    """The plan with another augmentation."""
    local = plan.spec.local.model_copy(update={"augmentation": rule})
    spec = plan.spec.model_copy(update={"local": local})
    return plan.model_copy(update={"spec": spec})


def solved(unit, rule):
    """A plan of clients, or of records, some of whose mini-batches are empty."""
    of_records = unit == "record"
    group = {"clients": 9, "epsilon": 8}
    if of_records:
        group["records"] = 6
    length = "epochs" if of_records else "steps"
    data = {
        "name": "solved",
        "unit": unit,
        "groups": [{"name": "a", **group}, {"name": "b", **group}],
        "delta": 1e-3,
        "rounds": 2,
        "cohort": 6,
        "clipping_norm": 1.0,
        "local": {length: 2, "batch_size": 2, "augmentation": rule.model_dump()},
        "model": {"name": "mlp-digits", "parameters": 2410},
    }
    return solve(Spec.parse(data))


def world(rule):
    plan = with_rule(small.plan(), rule)
    return small.setting(ALGORITHMS.get("planned").build(plan))


def rows(experiment, clients, round_=1):
    context = RoundContext(round_, experiment.start, {}, None, {})
    group = experiment.algorithm.plan.groups[0]
    batch = client_batch(experiment, context, group, np.array(clients), round_=round_)
    return batch.x, batch.y


def test_mini_batches_are_the_same_ones_changed_by_each_clients_own_stream():
    rule = Augmentation(shift=1)
    plain, labels = rows(world(None), [0, 1, 2])
    changed_rows, same = rows(world(rule), [0, 1, 2])
    assert torch.equal(labels, same)
    assert not torch.equal(plain, changed_rows)
    source = streams(8, Purpose.AUGMENTATION, 1, clients=np.arange(3))
    assert torch.equal(changed_rows, augmented(plain, rule, source))
    alone, _ = rows(world(rule), [2])
    assert torch.equal(alone[0], changed_rows[2])
    later, _ = rows(world(rule), [2], round_=2)
    assert not torch.equal(later, alone)


def test_records_that_cannot_be_moved_are_refused():
    with pytest.raises(
        InputError, match="shift: must be below the sides of the images, 8 and 8"
    ):
        world(Augmentation(shift=8))
    experiment = world(Augmentation(flip=0.5))
    tokens = replace(experiment.data, kind="tokens")
    with pytest.raises(
        InputError, match="must be left out for records that are no images"
    ):
        replace(experiment, data=tokens)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("planned", "client"),
        pytest.param("DPFedAvg", "record", marks=pytest.mark.slow),
    ],
)
def test_a_run_is_replayed_with_the_images_of_its_clients(name, unit, tmp_path):
    folder = tmp_path / "run"
    plan = solved(unit, Augmentation(shift=1, flip=0.5))
    execute(Request(plan, name, "digits", folder))
    report = Replay(folder).run(None, 0, lambda done, total: None)
    assert report.outcome == "passed"
    assert report.reason == report.reason

    replay = Replay(folder)
    wrong = with_rule(plan, Augmentation(shift=2, flip=0.5))
    replay.world = replace(replay.world, plan=wrong)
    assert replay.run(None, 0, lambda done, total: None).outcome == "failed"
