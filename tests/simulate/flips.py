"""Flip bits of finished run folders: refused, or the same bundle to the bit.

``python -m tests.simulate.flips --folders 50 --flips 10000`` makes run folders under
several laws and methods, and flips one bit at a time. The picture is left out: no
verdict reads it (``test_closed_folder.py``), and half of the bytes are its.
"""

import argparse
import random
import shutil
import tempfile
import time
from pathlib import Path

from privplan.errors import PrivplanError
from privplan.folder import PLOT
from privplan.planning.solver import solve
from privplan.publishing import bundle_of
from privplan.record import REPLAY, run_folder
from privplan.spec.spec import Spec
from privplan.verification.verify import load_run
from simulate.runs.request import Request
from simulate.runs.run import execute

CASES = [
    ("planned", "poisson"),
    ("planned", "fixed_size"),
    ("planned", "banded_separation:3"),
    ("planned", "cyclic_poisson:3"),
    ("GDPFed+", "poisson"),
    ("DP-FedAvg-LS", "poisson"),
    ("DP2-FedSAM", "poisson"),
    ("CENTAUR", "poisson"),
]
NOISE = ("seeded", "secure")


def make(folder, number):
    """A finished run folder, of the case of that number."""
    name, law = CASES[number % len(CASES)]
    groups = [{"name": "strict", "clients": 12, "epsilon": 2.0}]
    groups.append({"name": "loose", "clients": 12, "epsilon": 6.0})
    data = {
        "name": "tiny",
        "groups": groups,
        "rounds": 3,
        "sampling": law,
        "clipping_norm": 0.3,
        "model": {"name": "mlp-digits", "parameters": 2410},
        "delta": 1e-3,
        "local": {"steps": 2, "batch_size": 8},
    }
    if not law.startswith("banded_separation"):
        data["cohort"] = 6
    plan = solve(Spec.parse(data))
    noise = NOISE[number // len(CASES) % len(NOISE)]
    execute(Request(plan, name, "digits", folder, seed=number, noise=noise))
    return folder


def published(folder):
    """The content of each file of the bundle of a run."""
    bundle, _ = bundle_of(load_run(run_folder(folder)))
    return bundle.contents()


def flip(folder, source, before):
    """Flip one bit, and put it back: how it ended, and where it was."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    read_files = [path for path in files if path.stat().st_size and path.name != PLOT]
    path = source.choice(read_files)
    content = path.read_bytes()
    place = source.randrange(len(content))
    bit = source.randrange(8)
    changed = bytearray(content)
    changed[place] ^= 1 << bit
    path.write_bytes(changed)
    where = f"{path.name}, byte {place}, bit {bit}"
    try:
        after = published(folder)
    except PrivplanError as error:
        return type(error).__name__, where
    finally:
        # What executing the changed run found would break it for ever.
        (folder / REPLAY).unlink(missing_ok=True)
        path.write_bytes(content)
    return ("same" if after == before else "another bundle"), where


def main():
    """Flip, and count how the flips end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folders", type=int, default=8)
    parser.add_argument("--flips", type=int, default=200, help="in each folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9)
    options = parser.parse_args()
    source = random.Random(options.seed)
    counts = {}
    until = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory() as temporary:
        folders = [make(Path(temporary) / str(n), n) for n in range(options.folders)]
        befores = [published(folder) for folder in folders]
        for turn in range(options.folders * options.flips):
            if time.monotonic() > until:
                break
            number = turn % len(folders)
            outcome, where = flip(folders[number], source, befores[number])
            counts[outcome] = counts.get(outcome, 0) + 1
            if outcome == "another bundle":
                print(f"folder {number}: {where}", flush=True)
                shutil.copytree(folders[number], f"flip-{turn}")
    print(sum(counts.values()), "flips:", counts)


if __name__ == "__main__":
    main()
