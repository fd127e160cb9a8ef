"""The command line as a process: ``privplan`` and ``python -m privplan``."""

from __future__ import annotations

import gc
from collections.abc import Sequence

from privplan.processes import end_at_once, exit_on_sigint, one_blas_thread


def run(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit."""
    with end_at_once(), exit_on_sigint():
        # Imports and plans live to the end. Most commands end before a first walk over
        # their some hundred thousand objects, which takes longer than their work.
        gc.set_threshold(400_000)
        one_blas_thread()
        from privplan.cli import main

        main(args=arguments, prog_name="privplan")


if __name__ == "__main__":
    run()
