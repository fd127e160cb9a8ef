"""The command line as a process: ``privplan`` and ``python -m privplan``."""

from __future__ import annotations

from collections.abc import Sequence

from privplan.processes import collect_rarely, end_at_once, exit_on_sigint, one_blas_thread


def run(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit.

    Args:
        arguments: the words after ``privplan``; by default those of the process.
    """
    with end_at_once(), exit_on_sigint():
        collect_rarely()
        one_blas_thread()
        from privplan.cli import main

        main(args=arguments, prog_name="privplan")


if __name__ == "__main__":
    run()
