"""Malformed input guided by coverage: ``python -m tests.fuzz.guided -runs=10000``.

Without atheris it is random, for the seconds of ``-max_total_time``.
Every input picks one reader by its first byte and is read as hypothesis would.
"""

import random
import resource
import sys
import time
import warnings
from contextlib import nullcontext

try:
    import atheris
except ImportError:
    atheris = None

with (
    atheris.instrument_imports(include=["privplan", "yaml"])
    if atheris
    else nullcontext()
):
    from tests.fuzz.promise import PROPERTIES
    from tests.fuzz.test_fuzz import fed

SLOW = ("every field", "solving", "command lines")
READERS = [name for name in PROPERTIES if name not in SLOW]
MAX_ADDRESS_SPACE = 2 * 2**30
"""Bytes of the address space; libraries take a part before any input is read."""
FEEDS = [fed(PROPERTIES[name], 1).hypothesis.fuzz_one_input for name in READERS]


def one_input(data):
    """Feed one reader with what the bytes stand for."""
    if data:
        FEEDS[data[0] % len(FEEDS)](data[1:])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if atheris is not None:
        atheris.Setup(sys.argv, one_input)
        atheris.Fuzz()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE, MAX_ADDRESS_SPACE))
    options = [option for option in sys.argv if option.startswith("-max_total")]
    seconds = [float(option.partition("=")[2]) for option in options]
    generator = random.Random(1)
    num_runs = 0
    end = time.monotonic() + sum(seconds)
    while time.monotonic() < end:
        data = generator.randbytes(generator.randint(1, 2048))
        try:
            one_input(data)
        except BaseException:
            print(f"{num_runs} runs, then {data.hex()}")
            raise
        num_runs += 1
    print(f"Done {num_runs} runs")
