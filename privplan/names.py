"""Names of groups, populations and accounts: what they may be, and which look the same.

A name stands in tables and refusals and decides whose budget is spent, so two accounts
must not have names that a reader takes for one.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping

from privplan.errors import Fault, InputError

LONGEST = 400  # letters that the column of a database has room for

# Scripts that are written together, by the first word of their letters' Unicode names.
_WRITTEN_TOGETHER = {
    "HIRAGANA": "CJK",
    "KATAKANA": "CJK",
    "KATAKANA-HIRAGANA": "CJK",
    "HANGUL": "CJK",
    "BOPOMOFO": "CJK",
}

# Letters of Greek and Cyrillic, after case folding, that are drawn as a Latin one; from
# the confusables of Unicode Technical Standard 39.
_LOOKS_LIKE = str.maketrans(
    {
        **dict(zip("асԁеһіјӏорԛѕԝхуѵ", "acdehijlopqswxyv", strict=True)),
        **dict(zip("αεικνορτυχ", "aeiknoptux", strict=True)),
        **dict(zip("вкмнтг", "bkmhtr", strict=True)),
    }
)


def name_faults(field: str, name: object, *, empty: bool = False) -> Iterator[Fault]:
    """What is wrong with a name.

    Args:
        field: where the name stands.
        name: what was given.
        empty: whether it may be empty.
    """
    if not isinstance(name, str) or len(name) > LONGEST or not (name or empty):
        yield Fault(field, f"must be a name of 1 to {LONGEST} letters", name)
        return
    scripts = sorted(_scripts(name))
    if not name.isprintable():
        yield Fault(field, "must have printable letters only", name)
    elif name != name.strip():
        yield Fault(field, "must have no space before or after it", name)
    elif name != unicodedata.normalize("NFC", name):
        yield Fault(field, "must be in Unicode's composed form (NFC)", name)
    elif len(scripts) > 1:
        yield Fault(
            field, f"must be of one script, not of {' and '.join(scripts)}", name
        )


def refuse_names(names: Mapping[str, str]) -> None:
    """Refuse names, by the field where each stands; an empty one is none.

    Raises:
        InputError: with all faults.
    """
    faults: list[Fault] = []
    for field, name in names.items():
        faults += name_faults(field, name, empty=True)
    if faults:
        raise InputError(faults)


def skeleton(name: str) -> str:
    """A name as it is read: names that look alike, but for their case, have one."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    return " ".join(plain.translate(_LOOKS_LIKE).split())


def refuse_look_alike(field: str, name: str, existing: Iterable[str]) -> None:
    """Refuse a name that is new and that a reader would take for an existing one.

    Raises:
        InputError: naming the existing one.
    """
    names = set(existing)
    if name in names:
        return
    as_read = skeleton(name)
    for existing_name in sorted(names):
        if skeleton(existing_name) == as_read:
            rule = f"must not look like {existing_name!a}, which is another one"
            raise InputError.one(field, rule, ascii(name))


def _scripts(name: str) -> set[str]:
    """The scripts of the letters of a name."""
    scripts = set()
    for letter in name:
        if not unicodedata.category(letter).startswith("L"):
            continue
        script = unicodedata.name(letter, "UNKNOWN").split()[0]
        scripts.add(_WRITTEN_TOGETHER.get(script, script))
    return scripts
