"""One rank of several runs, one after the other: started by ``torchrun``, or forked.

The arguments are a plan, a folder, and the algorithms; each has a run in the folder. An
algorithm with a colon and a noise has its key in the folder too.
"""

import os
import sys
from pathlib import Path

import torch

from privplan.plan import Plan
from simulate.parallel import process_group
from simulate.runs.request import Request
from simulate.runs.run import execute, execute_nonzero_rank


def forked(rank, port, *arguments):
    """One of two ranks without ``torchrun``, which loads the libraries once more."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_PORT": port}
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        **{name: str(number) for name, number in place.items()},
    }
    torch.set_num_threads(1)
    main(*arguments)


def main(plan, folder, *algorithms):
    with process_group(cuda=False) as ranks:
        for argument in algorithms:
            name, _, noise = argument.partition(":")
            request = Request(
                Plan.load(Path(plan)),
                name,
                "digits",
                Path(folder) / argument,
                seed=5,
                own_unit=True,
                noise=noise or "seeded",
                noise_key_file=Path(folder) / f"{argument}.key" if noise else None,
            )
            if ranks.is_main:
                execute(request, ranks=ranks)
            else:
                execute_nonzero_rank(request, ranks)


if __name__ == "__main__":
    main(*sys.argv[1:])
