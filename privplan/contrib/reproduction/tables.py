"""Published tables, and the registry of the papers that print them.

A paper of this project is a file of data beside its module: titles, claims, printed
numbers, sizes and times. The module has the functions that the file names: they compute
a table of plans, list the settings of a table of runs, or judge a claim.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from privplan.contrib.reproduction.claims import (
    Cell,
    Claim,
    Differences,
    Judge,
    ahead,
    lead_rises,
    printed_within,
    rises,
)
from privplan.errors import InputError, did_you_mean
from privplan.files import read_text
from privplan.plan import Plan
from privplan.record import STREAMS
from privplan.registry import Registry
from privplan.values import digest
from privplan.verification.verify import judge, load_run
from privplan.yaml_text import load_yaml


@dataclass(frozen=True)
class Method:
    """A row of a table of runs."""

    algorithm: str  # name of a registered algorithm
    # values that differ from the algorithm's defaults
    hyperparameters: Mapping[str, float] = field(default_factory=dict)
    # fields of the spec that differ for this method, such as its clipping norm
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """A column of a table of runs: what all methods are trained on, or attacked."""

    column: str  # head of the column
    spec: Mapping[str, Any]  # plain data of the spec
    dataset: str  # name of the data set
    methods: Mapping[str, Method]  # methods by head of row
    partition: str = "iid"  # who holds which records
    # further options of the command, by name
    options: Mapping[str, str] = field(default_factory=dict)


Computed = Iterable[tuple[str, str, float | Sequence[float]]]
"""Row, column and value, or several values, of cells."""


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper."""

    name: str  # on the command line, such as ``gdpfed-plus-table-2``
    title: str  # in the paper, such as ``Table 2: accuracy``
    claims: tuple[Claim, ...] = ()  # what the paper says of it
    # Computes the cells of a table of plans.
    planned: Callable[[], Computed] | None = None
    # settings of a table of runs, by size
    trained: Mapping[str, Callable[[], list[Setting]]] = field(default_factory=dict)
    # what is measured of each run: a name of ``measures.MEASURES``
    measure: str = "accuracy in percent"
    # printed number and its standard error (or None) by row and column
    printed: Mapping[tuple[str, str], tuple[float, float | None]] = field(
        default_factory=dict
    )
    sizes: Mapping[str, str] = field(
        default_factory=dict
    )  # what each size means, in words
    # CPU minutes on one core, by size; measured or, as ``sizes`` then says, estimated
    minutes: Mapping[str, float] = field(default_factory=dict)
    first_seed: int = 0  # of its runs; 1 where seed 0 has chosen learning rates
    # Why nothing computes it; empty for a table that can be reproduced.
    left_out: str = ""
    # Whether it has any; a table of notation or settings has none.
    has_results: bool = True

    @property
    def kind(self) -> str:
        """``plans``, ``runs`` or ``left out``."""
        return "plans" if self.planned else "runs" if self.trained else "left out"

    def cell(
        self, row: str, column: str, values: float | Sequence[float], **more: Any
    ) -> Cell:
        """A cell beside its printed number."""
        known = tuple(values) if isinstance(values, Sequence) else (values,)
        printed, error = self.printed.get((row, column), (None, None))
        head: dict[str, Any] = {"published": printed, "published_error": error}
        return Cell(row=row, column=column, values=known, **head, **more)

    def computed(self) -> tuple[Cell, ...]:
        """The cells of a table of plans."""
        return tuple(
            self.cell(*one) for one in (self.planned() if self.planned else ())
        )


@dataclass(frozen=True)
class Paper:
    """A paper with all its tables."""

    title: str  # authors and title
    tables: tuple[Table, ...]  # its tables and figures, in their order
    differs: str = ""  # what differs from the paper at the sizes of the stored results


PAPERS: Registry[Paper] = Registry(
    "paper",
    "privplan.papers",
    "privplan.contrib.reproduction.papers",
    order=lambda paper: paper.title.casefold(),
)


def tables() -> list[Table]:
    """The tables of all papers."""
    return [table for _, paper in PAPERS.items() for table in paper.tables]


def table_of(name: str) -> Table:
    """The table of a name."""
    known = {table.name: table for table in tables()}
    plain = name.strip().lower().replace("_", "-")
    if plain not in known:
        near = did_you_mean(plain, known)
        raise InputError.one(
            "table", f"must be one of privplan reproduce --list{near}", name
        )
    return known[plain]


# The file of a paper.

Functions = Mapping[str, Callable[..., Any]]


def data_of(paper: str) -> dict[str, Any]:
    """What the file of a paper holds."""
    text = files("privplan.contrib.reproduction.papers").joinpath(f"{paper}.yaml")
    found: dict[str, Any] = load_yaml(text.read_text(encoding="utf-8"), paper)
    return found


def printed_rows(data: Mapping[str, Any], table: str) -> dict[str, list[Any]]:
    """The printed rows of a table by their heads, in the order of its columns."""
    [found] = [one["printed"]["rows"] for one in data["tables"] if one["name"] == table]
    return dict(found)


def paper_of(data: Mapping[str, Any], functions: Functions) -> Paper:
    """The paper of a file; names of functions are of the module that calls."""
    words = data.get("words", {})
    known = tuple(_table(one, words, functions) for one in data["tables"])
    return Paper(data["title"], known, data.get("differs", ""))


def _table(
    one: Mapping[str, Any], words: Mapping[str, str], functions: Functions
) -> Table:
    found = dict(one)
    for name in {"planned"} & set(one):
        found[name] = called(one[name], functions)
    for name in {"trained"} & set(one):
        found[name] = {
            size: called(make, functions) for size, make in one[name].items()
        }
    found["claims"] = tuple(
        _claim(each, words, functions) for each in one.get("claims", ())
    )
    found["printed"] = dict(_printed(**one["printed"])) if "printed" in one else {}
    found["sizes"] = {
        size: text.format_map(words) for size, text in one.get("sizes", {}).items()
    }
    found["left_out"] = one.get("left_out", "").format_map(words)
    return Table(**found)


def called(named: Any, functions: Functions) -> Callable[..., Any]:
    """A function of a module: its name, or its name with arguments."""
    if isinstance(named, str):
        return functions[named]
    [(name, arguments)] = named.items()
    if "of" in arguments:
        arguments = {**arguments, "of": called(arguments["of"], functions)}
    shared: Functions = {"tuned": tuned, "by_rate": by_rate, "by_value": by_value}
    return partial(shared.get(name) or functions[name], **arguments)


def tuned(
    of: Callable[[], list[Setting]],
    rates: Mapping[str, Sequence[float]],
    numbers: Mapping[str, Mapping[str, float]],
) -> list[Setting]:
    """Settings at the learning rates of rows, by column, and at their other numbers.

    Both are the best at seed 0: rates of ``by_rate``, and then numbers of ``by_value``.
    """
    found = []
    for at, one in enumerate(of()):
        methods = dict(one.methods)
        methods |= {row: at_rate(one, row, values[at]) for row, values in rates.items()}
        methods |= {row: _with(methods[row], values) for row, values in numbers.items()}
        found.append(replace(one, methods=methods))
    return found


def by_rate(of: Callable[[], list[Setting]], values: Sequence[float]) -> list[Setting]:
    """Settings at each learning rate of a grid, the same for all rows."""
    return [
        replace(
            one,
            column=f"{one.column}, rate {value:g}",
            methods={row: at_rate(one, row, value) for row in one.methods},
        )
        for one in of()
        for value in values
    ]


def by_value(
    tables: Sequence[str], rows: Sequence[str], name: str, values: Sequence[float]
) -> list[Setting]:
    """Rows of the tuned settings of tables at each value of a hyperparameter."""
    return [
        replace(
            one,
            column=f"{one.column}, {name} {value:g}",
            methods={row: _with(one.methods[row], {name: value}) for row in rows},
        )
        for table in tables
        for one in table_of(table).trained["reduced"]()
        for value in values
    ]


def _with(method: Method, numbers: Mapping[str, float]) -> Method:
    return replace(method, hyperparameters={**method.hyperparameters, **numbers})


def at_rate(setting: Setting, row: str, rate: float) -> Method:
    """The method of a row at a learning rate."""
    method = setting.methods[row]
    local = {
        **setting.spec["local"],
        **method.changes.get("local", {}),
        "learning_rate": rate,
    }
    return replace(method, changes={**method.changes, "local": local})


def _printed(
    columns: Sequence[str], rows: Mapping[str, Sequence[Any]], runs: int = 0
) -> Iterable[tuple[tuple[str, str], tuple[float, float | None]]]:
    """Numbers, or with a number of runs means and standard deviations; None where not printed."""
    for row, values in rows.items():
        for column, value in zip(columns, values, strict=True):
            if value is not None:
                mean, deviation = value if runs else (value, 0.0)
                yield (row, column), (mean, deviation / runs**0.5 if runs else None)


def _claim(
    one: Mapping[str, Any], words: Mapping[str, str], functions: Functions
) -> Claim:
    return Claim(
        one["text"], _rule(one, functions), one.get("note", "").format_map(words)
    )


def _rule(one: Mapping[str, Any], functions: Functions) -> Judge | Differences:
    """A function of the module, or one of the rules for all papers."""
    if "judge" in one:
        return functions[one["judge"]]
    if "within" in one:
        return printed_within(one["within"])
    columns, margin = one.get("columns", ()), one.get("margin", 0.0)
    if "falls" in one or "rises" in one:
        paths = columns if columns and not isinstance(columns[0], str) else [columns]
        known = [("rises", 1.0), ("falls", -1.0)]
        rules = [rises(one.get(word, ()), sign=sign, columns=path)
                 for path in paths for word, sign in known]  # fmt: skip
        return Differences(
            lambda result: [at for rule in rules for at in rule(result)], margin
        )
    for name, sign in (("lead_rises", 1.0), ("lead_falls", -1.0)):
        if name in one:
            high, low = one[name]
            return Differences(lead_rises(high, low, sign=sign), margin)
    rows: Sequence[str] = one.get("ahead") or one.get("as_printed") or []
    pairs = one.get("pairs") or [(rows[0], other) for other in rows[1:]]
    return Differences(
        ahead(pairs, columns=columns, as_printed="as_printed" in one), margin
    )


# --- What a cell of a table of runs measures: accuracy, weights, time, or what attackers read. ---

Execute = Callable[[Sequence[str]], Mapping[str, Any]]
"""Executes ``privplan`` with these arguments; returns what it prints as JSON data. Other
processes can import it."""
Measure = Callable[[Execute, Plan, Sequence[str], Path], dict[str, Any]]
"""From the executor, the plan, the words for data, method and seed, and the folder of the result:
``value``, ``spent`` (largest epsilon by group; None is infinite) and ``seconds`` (wall
time)."""


def accuracy(
    execute: Execute, plan: Plan, words: Sequence[str], folder: Path
) -> dict[str, Any]:
    """Test accuracy of a run, in percent, and what its ledger spent."""
    record, run = execute(["simulate", *words, f"--output={folder}"]), load_run(folder)
    spent = {group.group: group.realised_upper for group in judge(run, 0).groups}
    done = executed(run.plan, run.record.configuration.get("numbers") or {})
    seconds, value = record["wall_seconds"], 100 * (record["accuracy"] or 0.0)
    return {"value": value, "spent": spent, "seconds": seconds, "executed": done}


_OF_GROUPS = ("sampling_ratio", "noise_multiplier", "weight", "scale", "kept_fraction")


def executed(plan: Plan, numbers: Mapping[str, float]) -> str:
    """Digest of plan, numbers (five digits, for all machines) and what streams are drawn by."""
    groups = [
        [f"{getattr(one, name):.5g}" for name in _OF_GROUPS]
        + [f"{plan.clip_factor(one):.5g}"]
        for one in plan.groups
    ]
    clipping = {} if plan.clipping is None else plan.clipping.model_dump()
    known = {name: f"{value:.5g}" for name, value in sorted(numbers.items())}
    draws, clip = [STREAMS, plan.spec_digest], f"{plan.spec.clipping_norm:.5g}"
    median = {name: f"{value:.5g}" for name, value in sorted(clipping.items())} or ""
    found = digest([draws, str(plan.release), groups, clip, median, known])
    return found[:16]


def round_seconds(
    execute: Execute, plan: Plan, words: Sequence[str], folder: Path
) -> dict[str, Any]:
    """Wall time of a run by its rounds, evaluation included."""
    found = accuracy(execute, plan, words, folder)
    return {**found, "value": found["seconds"] / plan.spec.rounds}


def reconstruction(
    execute: Execute,
    plan: Plan,
    words: Sequence[str],
    folder: Path,
    score: str = "psnr",
) -> dict[str, Any]:
    """Mean score of what an attack reads from the releases of single clients: PSNR in dB, or SSIM.

    ``spent`` is the epsilon of the attacked group's releases.
    """
    found = execute(["attack", *words, f"--output={folder}"])
    [row] = found["rows"]
    if isinstance(row["scores"][score], str):
        rule = "must be available; pip install 'privplan[attacks]' brings scikit-image"
        raise InputError.one("measure", rule, score)
    value, _, _ = row["scores"][score]
    epsilon = float(row["epsilon"])
    spent = dict.fromkeys(row["groups"], epsilon if math.isfinite(epsilon) else None)
    done = executed(plan, {})
    return {"value": value, "spent": spent, "seconds": row["seconds"], "executed": done}


def above_null(
    execute: Execute, plan: Plan, words: Sequence[str], folder: Path
) -> dict[str, Any]:
    """Mean PSNR of an attack over that of its best null row, in dB."""
    measured = reconstruction(execute, plan, words, folder)
    table = json.loads(read_text(folder / "attacks.json", "attacks"))
    [row] = table["rows"]
    best = max(null["psnr"][0] for null in row["nulls"].values())
    return {**measured, "value": measured["value"] - best}


def weight_distance(
    execute: Execute, plan: Plan, words: Sequence[str], folder: Path
) -> dict[str, Any]:
    """Half the sum of |w - w*| over the groups, in percent, with w* the weights of the plan.

    w are the weights that the server found from the updates, else those in the ledger;
    both are shares of all rounds.
    """
    found, run = accuracy(execute, plan, words, folder), load_run(folder)
    used = dict(run.record.weights)
    for line in () if used else run.ledger.records:
        for share in line.shares:
            used[share.group] = used.get(share.group, 0.0) + share.factor
    total = sum(used.values()) or 1.0
    gaps = (abs(used.get(one.name, 0.0) / total - one.weight) for one in plan.groups)
    return {**found, "value": 50 * sum(gaps)}


MEASURES: dict[str, Measure] = {
    "accuracy in percent": accuracy,
    "distance of the weights to the optimal ones in percent": weight_distance,
    "seconds per round": round_seconds,
    "PSNR in dB": reconstruction,
    "PSNR over the best null row in dB": above_null,
    "SSIM": partial(reconstruction, score="ssim"),
}
"""By the words for the numbers."""
