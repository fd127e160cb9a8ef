"""The command line as a process: ``privplan`` and ``python -m privplan``."""

from __future__ import annotations

import gc
from collections.abc import Sequence

from privplan.processes import end_at_once, exit_on_sigint, one_blas_thread


def run(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit."""
    with end_at_once(), exit_on_sigint():
        gc.set_threshold(
            50_000
        )  # imports and plans live to the end: walk over them rarely
        one_blas_thread()
        from privplan.cli import main

        main(args=arguments, prog_name="privplan")


if __name__ == "__main__":
    run()
