"""``python -m simulate``: ``privplan simulate``, to be spread over processes by ``torchrun``."""

import sys

from privplan.__main__ import run

if __name__ == "__main__":
    run(["simulate", *sys.argv[1:]])
