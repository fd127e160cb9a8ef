"""One rank of several runs, one after the other: started by ``torchrun`` in a test.

The arguments are a plan, a folder, and the algorithms; each has a run of its own in the folder.
An algorithm with a colon and a noise has its key in the folder too.
"""

import sys
from pathlib import Path

from privplan.plan import Plan
from simulate.parallel import process_group
from simulate.runs.request import Request
from simulate.runs.run import execute, execute_nonzero_rank


def main(plan, folder, *algorithms):
    with process_group(cuda=False) as ranks:
        for argument in algorithms:
            name, _, noise = argument.partition(":")
            request = Request(
                Plan.load(Path(plan)), name, "digits", Path(folder) / argument, seed=5,
                own_unit=True, noise=noise or "seeded",
                noise_key_file=Path(folder) / f"{argument}.key" if noise else None,
            )  # fmt: skip
            if ranks.is_main:
                execute(request, ranks=ranks)
            else:
                execute_nonzero_rank(request, ranks)


if __name__ == "__main__":
    main(*sys.argv[1:])
