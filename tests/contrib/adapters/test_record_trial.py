"""A trial of modules on made-up records: who is refused, and who is not."""

import pytest
import torch
from opacus.layers import DPLSTM
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


class _Weighted(nn.Module):
    """Has an option that one record's numbers enter for all."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x, mask=None):
        outputs = self.layer(x)
        return outputs if mask is None else outputs / mask.sum()


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


class _Packed(nn.Module):
    """Packs sequences that end in zeros, which sorts the records inside."""

    def __init__(self):
        super().__init__()
        self.codes = nn.Embedding(6, 3, padding_idx=0)
        self.layer = DPLSTM(3, 3, batch_first=True)

    def forward(self, x):
        lengths = (x > 0).sum(1)
        packed = nn.utils.rnn.pack_padded_sequence(
            self.codes(x), lengths, batch_first=True, enforce_sorted=False
        )
        return self.layer(packed)[1][0][-1]


class _Trimmed(nn.Module):
    """Takes a mean over as many codes as the longest record of its batch has."""

    def __init__(self):
        super().__init__()
        self.codes = nn.Embedding(20, 3)

    def forward(self, x, lengths):
        return self.codes(x[:, : lengths.max()]).mean(1)


class _Remembering(nn.Module):
    """Adds the mean of the batch before."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.means = {"batches": [0.0]}

    def forward(self, x):
        outputs = self.layer(x + self.means["batches"][-1])
        self.means["batches"].append(float(x.mean()))
        return outputs


class _Logarithms(nn.Module):
    """Takes logarithms of positive numbers, less their mean over the batch."""

    def __init__(self, mixes):
        super().__init__()
        self.mixes = mixes
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        logarithms = x.log()
        if self.mixes:
            logarithms = logarithms - logarithms.mean(0)
        return self.layer(logarithms)


class _Named(nn.Module):
    """Takes its inputs by name only."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, *, x, **inputs):
        return self.layer(x) + inputs["mask"][:, :2]


class _Turned(nn.Module):
    """Gives (time, records, values); its layers take records first."""

    def __init__(self):
        super().__init__()
        self.codes = nn.Embedding(20, 3)

    def forward(self, x):
        return self.codes(x).transpose(0, 1)


class _Spectrum(nn.Module):
    """Takes complex numbers."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x.abs())


class _WithLoss(nn.Module):
    """Gives the loss of its labels."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x, y):
        return nn.functional.cross_entropy(self.layer(x), y)


@pytest.mark.parametrize(
    ("module", "sample", "rule"),
    [
        (
            _TimeFirst(),
            CODES,
            "batch_first.* found '5 of 2 in a trial, at codes.weight'",
        ),
        (
            _Positions(),
            CODES,
            "looked up for each, found '5 of 2 .* at positions.weigh",
        ),
        (
            _Packed(),
            CODES,
            "gradient from that record only, found 'layer.weight_ih_l0,",
        ),
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
        (_Named(), {"x": NUMBERS, "mask": NUMBERS, "y": CODES}),
        (_Logarithms(False), NUMBERS),
        (_Turned(), torch.zeros(1, 7, dtype=torch.long)),
        (_Turned(), torch.zeros(1, 2, dtype=torch.long)),
        (_Spectrum(), torch.zeros(1, 4, dtype=torch.complex64)),
        (_WithLoss(), [NUMBERS, CODES[:, 0]]),
        (_Masked(False), [[NUMBERS, NUMBERS], CODES]),
        (nn.Linear(5, 2), CODES),  # of which a loop makes numbers
        (nn.Linear(6, 2), torch.zeros(1, 1, 2, 3)),  # which it flattens
    ],
)
def test_other_modules_are_not_refused(module, sample):
    weights = {name: part.clone() for name, part in module.state_dict().items()}
    refuse_mixed_records(module, sample)
    for name, part in module.state_dict().items():
        assert torch.equal(part, weights[name])


def test_a_module_that_cannot_be_tried_is_refused_without_examples():
    module = nn.Linear(4, 2)
    with pytest.raises(
        InputError, match=r"must take inputs like .* found 'RuntimeError"
    ):
        refuse_mixed_records(module, CODES)
    refuse_mixed_records(module, CODES, (torch.randn(8, 4),))
    refuse_mixed_records(_Masked(False), CODES, (torch.randn(8, 4), torch.ones(8, 4)))
    named = {"x": torch.randn(8, 4), "mask": torch.ones(8, 4)}
    refuse_mixed_records(_Named(), CODES, named)
    mixed = (torch.randn(12, 4), torch.rand(12, 4))
    with pytest.raises(InputError, match="outputs from that record only"):
        refuse_mixed_records(_Masked(True), CODES, mixed)


@pytest.mark.parametrize(
    "examples",
    [(torch.randn(7, 4),), (torch.randn(8, 4), torch.tensor(1)), torch.ones(12, 4)],
)
def test_examples_are_enough_records(examples):
    with pytest.raises(
        InputError, match="must be a tuple or dict of tensors of the same 8 records or"
    ):
        refuse_mixed_records(nn.Linear(4, 2), CODES, examples)


class _Wide(nn.Module):
    """Subtracts the mean of a batch in a wide layer before what can saturate."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 2048), nn.ReLU(), nn.Linear(2048, 512))
        self.last = nn.Linear(512, 1)

    def forward(self, x):
        inner = self.layers(x)
        return self.last((inner - inner.mean(0)).relu()).sigmoid()


def test_a_trial_does_not_saturate_wide_modules():
    with pytest.raises(InputError, match="a record's outputs from that record only"):
        refuse_mixed_records(_Wide(), NUMBERS)


def test_a_module_without_gradients_shows_nothing():
    module = nn.Sequential(nn.Linear(4, 2), nn.Threshold(1e9, 0.0))
    with pytest.raises(InputError, match="found 'gradients that are all 0'"):
        refuse_mixed_records(module, NUMBERS)


def test_a_module_of_unknown_sizes_is_refused():
    with pytest.raises(
        InputError, match="must have parameters of known sizes; call it"
    ):
        refuse_mixed_records(nn.LazyLinear(2), NUMBERS)


def test_a_trial_leaves_the_random_numbers_of_the_process():
    module = nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    refuse_mixed_records(module, NUMBERS)
    assert torch.equal(torch.rand(3), expected)
