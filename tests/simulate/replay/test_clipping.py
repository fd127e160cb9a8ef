"""Sums of clipped vectors, executed again."""

import pytest
import torch

from simulate.replay.clipping import ClippedSum


def with_count(sent, exceeds):
    """An update with half a count behind it, as an adaptive clipping norm appends."""
    return torch.cat([sent, sent.new_tensor([-0.5 if exceeds else 0.5])])


def test_an_appended_count_is_no_part_of_an_update():
    """Rounding of the count hides an update that is much smaller."""
    clipped_sum = ClippedSum(1.0, with_count)
    clipped_sum.add(torch.tensor([3e-9, 4e-9]))
    assert clipped_sum.norms_sent == pytest.approx([5e-9])
    assert clipped_sum.is_within(1e-8)
    assert not clipped_sum.is_within(1e-9)
    assert clipped_sum.summed_norms == pytest.approx(0.5)


def test_only_what_is_sent_counts():
    clipped_sum = ClippedSum(1.0)
    clipped_sum.is_sent = torch.tensor([True, False])
    clipped_sum.add(torch.tensor([3.0, 4.0]))
    assert clipped_sum.norms_sent == pytest.approx([0.6])
    assert clipped_sum.summed_norms == pytest.approx(1.0)


def test_rounding_that_hides_most_is_not_outweighed_by_the_largest():
    clipped_sum = ClippedSum(1.0)
    for size in (0.0, 1e-9, 1e-9, 1.0):
        clipped_sum.add(torch.tensor([size]))
    assert clipped_sum.is_within(1e-8)
