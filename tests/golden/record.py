"""Compare what the present code answers with what is stored, or store it anew.

python tests/golden/record.py             print differences, with exit code 1
python tests/golden/record.py --exact     the same, of every digit
python tests/golden/record.py --write     store all answers anew
python tests/golden/record.py NAME ...    only these cases
"""

import argparse
import difflib
import hashlib
import math
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GOLDEN_FOLDER = Path(__file__).parent
ROOT = GOLDEN_FOLDER.parent.parent
EXPECTED = GOLDEN_FOLDER / "expected"

if __name__ == "__main__":  # a script finds the code beside it
    sys.path.insert(0, str(ROOT))

import scipy.linalg  # noqa: E402, F401  its threads can be limited only once it is loaded
import torch  # noqa: E402
from click.testing import CliRunner  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from privplan.cli import main as privplan  # noqa: E402
from tests.golden.cases import CASES  # noqa: E402
from tests.golden.steps import Call, Case, Edit, Put  # noqa: E402

# Relative distances of numbers, whose last digits follow processor and package
# versions.
TOLERANCE = 1e-6
TRAINING_TOLERANCE = 1e-4
# Distances of two numbers near 0, by the relative distance.
NOTHING = {TOLERANCE: 1e-12, TRAINING_TOLERANCE: 1e-8}
TRAINING = {"simulate", "compare", "proxy"}

# Variables that would change what is printed, or where it is looked for.
CLEARED = (
    "PRIVPLAN_BOOK",
    "PRIVPLAN_DATA",
    "FORCE_COLOR",
    "NO_COLOR",
    "COLUMNS",
    "LINES",
)

LINES_IN_FULL = 60
LETTERS_IN_FULL = 40_000

_PACKAGE = re.compile(r"\b(privplan|prv-accountant|dp-accounting|opacus) \d+(?:\.\d+)+")
_SECONDS = re.compile(r"(after \d+ rounds, )\d+\.\d+ s\b")
_WALL = re.compile(r'("wall_seconds":\s*)[-+.\deE]+')
_OF_MACHINE = re.compile(r'("versions": )\{[^{}]*\}')


def masked(text: str, folder: Path) -> str:
    """The text without what differs between two runs of the same code."""
    for name in sorted({str(folder), os.path.realpath(folder)}, key=len, reverse=True):
        text = text.replace(name, "<folder>")
    text = _PACKAGE.sub(r"\1 <version>", text)
    text = _SECONDS.sub(r"\1<seconds> s", text)
    text = _WALL.sub(r"\1<seconds>", text)
    return _OF_MACHINE.sub(r'\1"<versions>"', text)


def shortened(text: str) -> str:
    """The text, or its first and last line and a hash over all where it is long."""
    lines = text.splitlines()
    is_long = len(lines) > LINES_IN_FULL or len(text) > LETTERS_IN_FULL
    if not is_long:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()
    between = f"<{len(lines)} lines, sha256 {digest}>"
    return "\n".join([lines[0], between, lines[-1]]) + "\n"


def _of_file(path: Path, folder: Path) -> str:
    """What is recorded of a file or folder."""
    if path.is_dir():
        return "".join(f"{child.name}\n" for child in sorted(path.iterdir()))
    if not path.exists():
        return "<no such file>\n"
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return _ledger(text)
    if path.suffix == ".csv" or path.name == "audit.json":
        return shortened(masked(text, folder))
    return masked(text, folder)


def _ledger(text: str) -> str:
    """First and last line of a ledger, and a hash over all lines."""
    lines = text.splitlines()
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{lines[0]}\n<{len(lines)} lines, sha256 {digest}>\n{lines[-1]}\n"


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())


@contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    """The folder as working directory, on one core; both are put back.

    The order of additions in a product of matrices follows the number of threads.
    """
    before = Path.cwd()
    threads = torch.get_num_threads()
    os.chdir(folder)
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        os.chdir(before)
        torch.set_num_threads(threads)


def answer(case: Case, folder: Path) -> str:
    """Everything that the case's calls say and write, as text."""
    texts = []
    with _working_in(folder):
        for step in case.steps:
            if isinstance(step, Call):
                texts.append(_called(step, folder))
            elif isinstance(step, Put):
                path = folder / step.path
                path.parent.mkdir(parents=True, exist_ok=True)
                content = step.content
                path.write_bytes(
                    content if isinstance(content, bytes) else content.encode()
                )
            else:
                _edit(step, folder)
    return "\n".join(texts)


def _edit(step: Edit, folder: Path) -> None:
    path = folder / step.path
    text = path.read_text(encoding="utf-8")
    if step.old not in text:
        raise ValueError(f"{step.path} has no {step.old!r}")
    path.write_text(text.replace(step.old, step.new), encoding="utf-8")


def _called(step: Call, folder: Path) -> str:
    runner = CliRunner(env=dict.fromkeys(CLEARED))
    done = runner.invoke(privplan, list(step.arguments), prog_name="privplan")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    words = " ".join(
        f"'{word}'" if " " in word or not word else word for word in step.arguments
    )
    texts = [f"$ privplan {words}\n", f"exit code {done.exit_code}\n"]
    for name, text in (("stdout", done.stdout), ("stderr", done.stderr)):
        if text:
            texts.append(f"{name}:\n{_indented(masked(text, folder))}")
    for name in step.files:
        texts.append(f"file {name}:\n{_indented(_of_file(folder / name, folder))}")
    return "".join(texts)


def expected(name: str) -> str:
    """The stored answer of a case; empty when there is none."""
    path = EXPECTED / f"{name}.txt"
    return path.read_text(encoding="utf-8") if path.exists() else ""


# A hash, or the beginning of a plan's, which also stands alone in a cell with a letter.
_HASH = re.compile(
    r"\b[0-9a-f]{24,64}\b|(?<=plan)\s+[0-9a-f]{12}\b|\b(?=[0-9]*[a-f])[0-9a-f]{12}\b"
)
_RULE = re.compile(r"[━─]+|(?<=\S) {2,}|(?<=\n) +| +(?=\n)")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def close(present: str, stored: str, tolerance: float) -> bool:
    """Whether two answers are equal but for numbers that hardly differ.

    Hashes are left out, and so is the padding of tables, which follows the digits.
    """
    texts = [_RULE.sub(" ", _HASH.sub("<hash>", text)) for text in (present, stored)]
    if _NUMBER.sub("#", texts[0]) != _NUMBER.sub("#", texts[1]):
        return False
    numbers = [map(float, _NUMBER.findall(text)) for text in texts]
    pairs = zip(*numbers, strict=True)
    return all(
        math.isclose(*pair, rel_tol=tolerance, abs_tol=NOTHING[tolerance])
        for pair in pairs
    )


def difference(name: str, present: str, exact: bool = False) -> str:
    """A unified diff between the stored answer and the present one."""
    stored = expected(name)
    calls = [step for step in CASES[name].steps if isinstance(step, Call)]
    tolerance = (
        TRAINING_TOLERANCE
        if any(call.arguments[0] in TRAINING for call in calls)
        else TOLERANCE
    )
    if present == stored or (not exact and close(present, stored, tolerance)):
        return ""
    lines = difflib.unified_diff(
        stored.splitlines(keepends=True),
        present.splitlines(keepends=True),
        fromfile=f"expected/{name}.txt",
        tofile=f"found/{name}.txt",
        n=2,
    )
    return "".join(lines)


def answered(name: str) -> str:
    """The answer of a case, worked out in a temporary folder."""
    with tempfile.TemporaryDirectory() as scratch:
        return answer(CASES[name], Path(scratch))


def _store(name: str, text: str) -> None:
    EXPECTED.mkdir(exist_ok=True)
    (EXPECTED / f"{name}.txt").write_text(text, encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="cases; all when left out"
    )
    parser.add_argument("--exact", action="store_true", help="compare every digit")
    parser.add_argument("--write", action="store_true", help="store the answers anew")
    return parser.parse_args()


def run() -> int:
    """Carry out what the command line asks for; returns the exit code."""
    arguments = _arguments()
    unknown = [name for name in arguments.names if name not in CASES]
    if unknown:
        print(f"no such case: {', '.join(unknown)}", file=sys.stderr)
        return 2
    different = 0
    for name in arguments.names or CASES:
        text = answered(name)
        if arguments.write:
            _store(name, text)
            continue
        shown = difference(name, text, arguments.exact)
        if shown:
            different += 1
            print(shown)
    if arguments.write:
        if not arguments.names:
            for path in EXPECTED.glob("*.txt"):
                if path.stem not in CASES:
                    path.unlink()
        return 0
    print(f"{len(arguments.names or CASES)} cases, {different} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(run())
