"""Malformed input of every kind, as strategies: odd values in places that exist.

A malformed document is a sound one with a few of its places changed, or plain garbage:
the former reaches the rules between fields, the latter the readers.
"""

import copy
import json
import math
from typing import Any, get_args

import yaml
from hypothesis import strategies as st

from privplan.spec.spec import Spec
from privplan.values import Value
from tests.planning.problems import spec_data

BIG = 10**400
SMALL = st.sampled_from([0, 1, 2, 3, 10, 0.1, 0.25, 0.9, 1e-3, 100.0])
NUMBERS = st.one_of(
    st.sampled_from(
        [0, -1, 1, 2, 10**9, 10**15, 10**16, 2**63, 2**64, BIG, -BIG, 10**4000]
    ),
    st.sampled_from([0.0, -0.0, 0.5, 1.0, 1e-320, 1e-12, 1e300, -1e300, 1.5]),
    st.sampled_from([math.inf, -math.inf, math.nan]),
    st.integers(),
    st.floats(),
)
"""Numbers at and beyond the ends of what any field takes."""
WORDS = st.one_of(
    st.sampled_from(
        [
            "",
            " ",
            "\n",
            "\0",
            "../../etc/passwd",
            "/dev/null",
            "[/x]",
            "[red]x",
            "$\\frac$",
            "a/b",
            "\ud800",
            "\u202e",
            "n^-1.1",
            "n^-999999",
            "n^-0",
            "1e400",
            "NaN",
            "0x" + "f" * 4000,
            "9" * 5000,
            "true",
            "2020-13-45",
            "a" * 100_000,
            "%s{0}",
            "'; drop table",
            "\x1b[31m",
        ]
    ),
    st.text(max_size=20),
)
SCALARS = st.one_of(NUMBERS, WORDS, st.none(), st.booleans())
NODES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=8), inner, max_size=4),
    ),
    max_leaves=8,
)


def _places(data, path=()):
    """Every place of plain data, as the steps that lead to it."""
    if not isinstance(data, dict | list):
        return []
    steps = data.items() if isinstance(data, dict) else enumerate(data)
    places = []
    for step, value in steps:
        places.append((*path, step))
        if isinstance(value, dict | list):
            places += _places(value, (*path, step))
    return places


def _like(value):
    """Values that get past the first look at a place: of the same kind, or nearly."""
    if isinstance(value, bool) or value is None:
        return NODES
    if isinstance(value, int):
        return st.one_of(SMALL, NUMBERS, st.integers(-3, 1000), NODES)
    if isinstance(value, float):
        return st.one_of(SMALL, NUMBERS, st.floats(1e-6, 1e6), NODES)
    return st.one_of(WORDS, NODES) if isinstance(value, str) else NODES


@st.composite
def changed(draw, data, max_changes=3):
    """The data with one to a few places replaced, dropped, repeated or added."""
    malformed = copy.deepcopy(data)
    for _ in range(draw(st.integers(1, max_changes))):
        *parents, key = draw(st.sampled_from(_places(malformed) or [("new",)]))
        place = malformed
        for step in parents:
            place = place[step]
        match draw(st.sampled_from(["replace", "replace", "replace", "drop", "add"])):
            case "replace":
                place[key] = draw(_like(place[key]) if place else NODES)
            case "drop" if place:
                del place[key]
            case "add" if isinstance(place, dict):
                place[draw(st.text(max_size=8))] = draw(NODES)
            case _ if isinstance(place, list):
                place.append(
                    draw(st.one_of(NODES, st.sampled_from(copy.deepcopy(place) or [0])))
                )
    return malformed


ODD = st.sampled_from([1, 2, 0.3, 1e-30, 1e-12, 1e-3, 1.0, 10**15, 1e15, 1e40])
"""Numbers that fields take and nobody means."""


@st.composite
def odd(draw, data):
    """The data with one or two of its numbers replaced by odd ones."""
    malformed = copy.deepcopy(data)
    numbers = []
    for path in _places(malformed):
        value = malformed
        for step in path:
            value = value[step]
        if isinstance(value, int | float):
            numbers.append(path)
    paths = draw(st.lists(st.sampled_from(numbers), min_size=1, max_size=2))
    for *parents, key in paths:
        place = malformed
        for step in parents:
            place = place[step]
        place[key] = draw(ODD)
    return malformed


def _yaml(data):
    try:
        return yaml.safe_dump(data, allow_unicode=True)
    except (ValueError, yaml.YAMLError):  # numbers too long for a decimal word
        return json.dumps(repr(type(data)))


YAML_PIECES = st.sampled_from(
    [
        "a: &a [x, x]",
        "*a",
        "<<: *a",
        "!!python/object:os.system",
        "!!binary ==",
        "? [1]",
        "{",
        "]",
        "- ",
        ": ",
        "\t",
        "---",
        "...",
        "%YAML 9",
        "&a",
        "!!set {x}",
        "0o7",
        "1:2:3",
        ".nan",
        "'",
        '"\\ud800"',
        "#",
        "|",
        ">",
        "@",
        "`",
        "\n  ",
        "groups:",
        "name: x",
        "\x85",
        "\x00",
        "\ufeff",
    ]
)

SPECS = st.one_of(
    changed(spec_data()),
    changed(
        spec_data(planning={"ratios": "balanced", "weights": None, "free": ["ratios"]})
    ),
    NODES,
)
"""Plain data of malformed specs."""


def _models(annotation):
    """The values of an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, Value):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def fields(model, above=()):
    """The way to every field of a value, and of the values in it."""
    paths = set()
    for name, field in model.model_fields.items():
        paths.add((name,))
        for inner in _models(field.annotation):
            # A value that holds values of its kind has no end.
            if inner not in above:
                inner_paths = fields(inner, (*above, inner))
                paths.update((name, *path) for path in inner_paths)
    return paths


def filled(data, path, value):
    """The data with a value in a field, of groups in the first one."""
    filled_data = copy.deepcopy(data)
    place: Any = filled_data
    for step in path[:-1]:
        inner = place.get(step)
        place[step] = inner if isinstance(inner, dict | list) else {}
        place = place[step][0] if isinstance(inner, list) else place[step]
    place[path[-1]] = value
    return filled_data


_OPEN = {
    key: value
    for key, value in spec_data(planning={}).items()
    if key not in ("clipping_norm", "local")
}
_DECIDES = {"source": "default", "decides": ["clipping_norm", "local.learning_rate"]}
STARTS: tuple[dict[str, Any], ...] = (
    _OPEN,
    {**_OPEN, "recipe": _DECIDES, "local": {"momentum": 0.5}},
    spec_data(),
)
"""Sound specs: where the default recipe decides, where it is written out, and without it."""
FIELDS = sorted(fields(Spec))  # the way to every field of a spec
FILLS = st.tuples(st.sampled_from(STARTS), st.one_of(SCALARS, NODES))
"""A sound spec, and a value for each of its fields in turn."""

SPEC_TEXTS = st.one_of(
    SPECS.map(_yaml),
    st.lists(YAML_PIECES, max_size=12).map(" ".join),
    st.lists(YAML_PIECES, max_size=12).map("\n".join),
    st.text(max_size=60),
    st.integers(1, 5000).map(lambda depth: "[" * depth),
    st.integers(1, 5000).map(lambda depth: "{a: " * depth),
)

BUDGETS = st.one_of(
    st.lists(
        st.lists(st.one_of(WORDS, NUMBERS.map(_yaml)), max_size=4).map(",".join),
        max_size=5,
    )
    .map("\n".join)
    .map("client,epsilon,delta\n".__add__),
    st.lists(
        st.tuples(st.integers(0, 9), st.floats(0.01, 10), st.floats(0, 1)).map(
            lambda row: ",".join(map(str, row))
        ),
        max_size=9,
    )
    .map("\n".join)
    .map("client,epsilon,delta\n".__add__),
    st.text(max_size=60),
)
"""Text of malformed files of individual budgets."""


def documents(sound):
    """JSON texts that are malformed versions of a sound document."""
    return st.one_of(
        changed(sound).map(_json),
        NODES.map(_json),
        st.text(max_size=60),
        st.integers(1, 5000).map(lambda depth: "[" * depth),
        st.integers(1, 5000).map(lambda depth: '{"a":' * depth + "1" + "}" * depth),
    )


def _json(data):
    try:
        return json.dumps(data)
    except ValueError:
        return '{"schema_version": ' + "9" * 5000 + "}"
