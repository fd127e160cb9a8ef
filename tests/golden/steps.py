"""What a case is made of: files that are put in place, and calls of commands."""

from dataclasses import dataclass
from pathlib import Path

SPECS = Path(__file__).parent / "specs"


@dataclass(frozen=True)
class Call:
    """One call of ``privplan``."""

    arguments: tuple[str, ...]  # what follows ``privplan``
    # files, relative to the case's folder, that are recorded after the call; a name
    # that ends in ``/`` is a folder whose listing is recorded
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Put:
    """A file that is written before the next call."""

    path: str
    content: str | bytes


@dataclass(frozen=True)
class Edit:
    """A file in which each occurrence of ``old``, one at least, is replaced."""

    path: str
    old: str
    new: str


Step = Call | Put | Edit


@dataclass(frozen=True)
class Case:
    """Steps that are carried out in an empty folder, which is the working directory."""

    name: str  # stable identifier; also the name of the file with the expected output
    steps: tuple[Step, ...]  # in this order
    slow: bool = False  # whether the quick test suite leaves it out


def call(line, *files):
    """A call from words with blanks between; ``''`` is an empty word."""
    return Call(tuple("" if word == "''" else word for word in line.split()), files)


def spec(name, path="spec.yaml"):
    """A stored spec (or another file beside the specs), put at ``path``."""
    stored = SPECS / (name if "." in name else f"{name}.yaml")
    return Put(path, stored.read_text(encoding="utf-8"))
