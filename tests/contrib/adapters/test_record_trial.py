"""A trial of modules on made-up records: who is refused, and who is not."""

import pytest
import torch
from torch import nn

from privplan.contrib.adapters.record_trial import refuse_mixed_records
from privplan.errors import InputError

CODES = torch.zeros(1, 5, dtype=torch.long)
NUMBERS = torch.zeros(1, 4)


class _TimeFirst(nn.Module):
    """Its layers take time as their first dimension; its outputs have records first."""

    def __init__(self):
        super().__init__()
        self.codes = nn.Embedding(6, 3)
        self.head = nn.Linear(3, 6)

    def forward(self, x):
        return self.head(torch.tanh(self.codes(x.T))).transpose(0, 1)


class _Positions(nn.Module):
    """Learned positions, whose gradients have a row each for all records together."""

    def __init__(self):
        super().__init__()
        self.codes = nn.Embedding(6, 3)
        self.positions = nn.Embedding(5, 3)

    def forward(self, x):
        return self.codes(x) + self.positions(torch.arange(x.shape[1]))


class _PositionsByRecord(_Positions):
    """The same positions, looked up for each record."""

    def forward(self, x):
        places = torch.arange(x.shape[1]).expand(x.shape)
        return self.codes(x) + self.positions(places)


class _Mixup(nn.Module):
    """Mixes what it computed of records in pairs, in some of its calls."""

    def __init__(self, how_often):
        super().__init__()
        self.how_often = how_often
        self.first = nn.Linear(4, 3)
        self.last = nn.Linear(3, 2)

    def forward(self, x):
        hidden = self.first(x).tanh()
        if self.training and torch.rand(()) < self.how_often:
            hidden = 0.7 * hidden + 0.3 * hidden[torch.randperm(len(hidden))]
        return self.last(hidden)


class _Normalised(nn.Module):
    """Divides by the largest number of a batch, and gives several outputs."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        outputs = self.layer(x)
        return {"logits": outputs / outputs.detach().abs().max(), "raw": outputs}


class _Masked(nn.Module):
    """Takes two inputs; with ``mixes`` one record's mask is applied to all."""

    def __init__(self, mixes):
        super().__init__()
        self.mixes = mixes
        self.layer = nn.Linear(4, 2)

    def forward(self, x, mask):
        return self.layer(x * (mask[-1:] if self.mixes else mask))


class _Recurrent(nn.Module):
    """A recurrence by hand, which uses its parameters at each step."""

    def __init__(self):
        super().__init__()
        self.codes = nn.Embedding(6, 3)
        self.step = nn.Linear(6, 3)

    def forward(self, x):
        state = torch.zeros(len(x), 3)
        for codes in self.codes(x).unbind(1):
            state = torch.tanh(self.step(torch.cat([state, codes], 1)))
        return state, [state]


@pytest.mark.parametrize(
    ("module", "sample", "rule"),
    [
        (_TimeFirst(), CODES, r"records as their first .* found '5 at codes.weight'"),
        (_Positions(), CODES, r"records as .* found '5 at positions.weight'"),
        (_Mixup(1), NUMBERS, "a record's outputs from that record only"),
        (_Mixup(0.5), NUMBERS, "a record's outputs from that record only"),
        (
            _Normalised(),
            NUMBERS,
            "gradient from that record only, found 'layer.weight,",
        ),
        (_Normalised(), {"x": NUMBERS}, "a record's gradient from that record only"),
        (
            _Masked(True),
            [NUMBERS, NUMBERS, CODES],
            "a record's outputs from that record",
        ),
        (
            _Masked(True),
            {"x": NUMBERS, "mask": NUMBERS},
            "outputs from that record only",
        ),
    ],
)
def test_a_module_in_which_a_record_moves_others_is_refused(module, sample, rule):
    with pytest.raises(InputError, match=rule):
        refuse_mixed_records(module, sample)


def _small_convolution():
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2), nn.Flatten(), nn.Linear(8, 2)
    )


@pytest.mark.parametrize(
    ("module", "sample"),
    [
        (_small_convolution(), torch.zeros(1, 1, 4, 4)),
        (nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2)), NUMBERS),
        (nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 2), nn.Softmax(-1)), NUMBERS),
        (_PositionsByRecord(), CODES),
        (_Recurrent(), [CODES, torch.zeros(1)]),
        (_Masked(False), [NUMBERS, NUMBERS, CODES]),
        (_Masked(False), {"x": NUMBERS, "mask": NUMBERS, "y": CODES}),
        (nn.Linear(4, 2), CODES),  # which it cannot take: nothing is known of it
    ],
)
def test_other_modules_are_not_refused(module, sample):
    weights = {name: part.clone() for name, part in module.state_dict().items()}
    refuse_mixed_records(module, sample)
    for name, part in module.state_dict().items():
        assert torch.equal(part, weights[name])


def test_a_trial_leaves_the_random_numbers_of_the_process():
    module = nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    refuse_mixed_records(module, NUMBERS)
    assert torch.equal(torch.rand(3), expected)
