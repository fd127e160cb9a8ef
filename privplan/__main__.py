"""The command line as a process: ``privplan``, and ``python -m privplan``."""

from __future__ import annotations

from collections.abc import Sequence

from privplan.io.interrupts import exit_on_sigint


def run(arguments: Sequence[str] | None = None) -> None:
    """Carry out a command and exit.

    Args:
        arguments: what follows ``privplan``; those of the process when left out.
    """
    with exit_on_sigint():
        from privplan.cli import main

        main(args=arguments, prog_name="privplan")


if __name__ == "__main__":
    run()
