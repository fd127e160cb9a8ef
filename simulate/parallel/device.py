"""Where training happens."""

from __future__ import annotations

import torch

from privplan.errors import InputError
from simulate.parallel.distributed import ALONE, Ranks


def device_of(name: str, ranks: Ranks = ALONE) -> torch.device:
    """The device of a name; ``auto`` takes a GPU when there is one.

    Args:
        name: ``auto``, ``cpu`` or ``cuda``.
        ranks: the processes of the run; each of those on one machine has a GPU of its own.

    Raises:
        InputError: when a GPU is asked for and there is none, or fewer than processes.
    """
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "cpu" or (name == "auto" and not found):
        return torch.device("cpu")
    if not found:
        raise InputError.one("device", "must be cpu or auto where no GPU is found", name)
    if ranks.size == 1:
        return torch.device("cuda")
    if ranks.local >= found:
        rule = f"must be cpu where {found} GPUs are found for more processes of a machine"
        raise InputError.one("device", rule, name)
    torch.cuda.set_device(ranks.local)
    return torch.device("cuda", ranks.local)
