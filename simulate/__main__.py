"""``python -m simulate``: ``privplan simulate``, for processes that torchrun starts."""

import sys

from privplan.__main__ import run

if __name__ == "__main__":
    run(["simulate", *sys.argv[1:]])
