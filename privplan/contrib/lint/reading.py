"""What a framework module reads from a file: mechanisms, claims, alarms, undetermined values."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from privplan.accounting.release import Relation, Unit
from privplan.contrib.lint.script import Call, Script, Source
from privplan.registry import Registry, function_of


@dataclass(frozen=True)
class Options:
    """Values from the command line; they precede those of the file."""

    # units (clients, or records of record-level mechanisms) that may be drawn
    population: int | None = None
    rounds: int | None = None  # number of noisy releases
    delta: float | None = None  # failure probability, in (0, 1)


@dataclass(frozen=True)
class Alarm:
    """One reason why the configuration does not give what it appears to promise."""

    code: str  # short name of the trap, stable across versions
    message: str  # what is wrong, with the values found
    line: int = 0  # line of the file; 0 where the alarm is of the whole file


@dataclass(frozen=True)
class Claim:
    """An epsilon that the configuration states, or that its own accountant would print."""

    epsilon: float  # the claimed value
    delta: float | None  # its failure probability; None where the file does not state it
    # neighbouring relation that the claim names; None where it names none
    relation: Relation | None
    source: str  # where the value is from, for messages
    releases: int | None = None  # number of releases that it covers; None for all
    computed: bool = False  # whether it is not in the file but follows from its noise and sampling


@dataclass(frozen=True)
class Mechanism:
    """One noisy release per round as executed; None for values that are not determined."""

    group: str  # name of the clients or site that the mechanism protects
    unit: Unit  # unit of privacy
    protects: str  # what is protected from whom, one sentence
    # sampling law that the code executes: a name of ``laws.LAWS``, ``with_replacement``,
    # ``shuffle`` or ``round_robin``
    law: str | None
    # least and largest noise multiplier on the sum (standard deviation over the clipping norm);
    # equal where it is known exactly
    noise: tuple[float, float] | None
    cohort: float | None = None  # units drawn per round, or their expected number
    population: int | None = None  # units that may be drawn
    # sampling ratio, where it is stated instead of cohort and population
    ratio: float | None = None
    rounds: int | None = None  # number of releases
    local: bool = False  # whether each unit adds noise of its own, so that nothing is amplified
    # epsilon of one release by another analysis, such as that of Laplace noise
    known_epsilon: float | None = None

    @property
    def sampling_ratio(self) -> float | None:
        """The sampling ratio; None where it is not determined."""
        if self.local or self.law == "full":
            return 1.0
        if self.ratio is not None:
            return self.ratio
        if self.cohort is None or not self.population:
            return None
        return min(self.cohort / self.population, 1.0)


@dataclass
class Reading:
    """All that was read from a file."""

    mechanisms: list[Mechanism] = field(default_factory=list)  # noisy releases, usually one
    claims: list[Claim] = field(default_factory=list)  # stated epsilons
    alarms: list[Alarm] = field(default_factory=list)  # traps that the file shows
    # what the bounds assume, because the file does not show it
    conditions: list[str] = field(default_factory=list)
    # values that cannot be read, with the reason
    undetermined: list[str] = field(default_factory=list)
    delta: float | None = None  # failure probability that the file states
    # quantity, line and text of what makes a quantity not determined, beside assignments to it
    changes: list[tuple[str, int, str]] = field(default_factory=list)

    def mechanism(
        self, unit: Unit, protects: str, law: str | None,
        noise: float | tuple[float, float] | None, group: str = "all", **values: Any,
    ) -> None:  # fmt: skip
        """Add a mechanism; ``values`` are the further fields of ``Mechanism``."""
        band = (noise, noise) if isinstance(noise, int | float) else noise
        self.mechanisms.append(Mechanism(group, unit, protects, law, band, **values))

    def alarm(self, code: str, message: str, line: int = 0) -> None:
        """Add an alarm, once per code and line."""
        if not any((one.code, one.line) == (code, line) for one in self.alarms):
            self.alarms.append(Alarm(code, message, line))

    def unknown(self, name: str, reason: str) -> None:
        """Add a value that is not determined."""
        line = f"{name}: {reason}"
        if line not in self.undetermined:
            self.undetermined.append(line)


class Framework(Protocol):
    """Reads the files of one framework."""

    def __call__(self, source: Source, options: Options) -> Reading:
        """The mechanisms, claims and traps of a file."""


_OWN = "privplan.contrib.lint.frameworks"
FRAMEWORKS: Registry[Framework] = Registry(
    "of", "privplan.frameworks", _OWN, function_of("a source and options that returns a Reading")
)
"""Framework modules by name."""


# --- What changes after it was given: nothing that depends on it is determined. ------------------

_NOISE_NAMES = (
    r"noise|noise_?mult\w*|\w*noise_(multiplier|std\w*|scale|parameter|var)|\w*sigma|\w*noise_?stddev"
    r"|std_?dev|noise_?stdev"
)
_CLIP_NAMES = (
    r"\w*max_grad_norm\w*|\w*clip(ping)?_?(norm|bound|threshold|value|estimate)?|l2_norm_clip"
    r"|l2_clip|\w*norm_bound|sensitivity"
)
_SAMPLING_NAMES = (
    r"sampl\w*_(rate|ratio|probability|fraction)|fraction_(fit|train)|cohort_size|poisson_sampling"
    r"|num_sampled_clients|min_(fit_clients|train_nodes|available_clients|available_nodes)"
    r"|clients_per_round|user_?sampler|client_manager|batch_sampler|train_cohort_size"
)
_METHODS = r"_?(add|generate|get)_(\w+_)?noise\w*|clip_and_accumulate|clip_\w*"
_QUANTITIES = {
    "noise multiplier": re.compile(f"({_NOISE_NAMES}|{_CLIP_NAMES}|{_METHODS})$", re.IGNORECASE),
    "sampling law": re.compile(f"({_SAMPLING_NAMES})$", re.IGNORECASE),
    "claim": re.compile(r"(history|accountants?|privacy_accountant)$", re.IGNORECASE),
}
"""What the bound depends on, by the names under which the frameworks hold it."""
_SETTER = re.compile(r"_?(set|update|adjust|change|decay|anneal|scale)_(\w+)$")
_SCHEDULER = re.compile(
    r"\w*(Noise|GradClip|Clip\w*|Sigma)(Schedule\w*|Decay\w*)$|.*noise_scheduler"
)
_SCHEDULE = re.compile(
    r"\w*(noise|sigma|clip|grad_norm|sampl|cohort|fraction)\w*_(schedul\w*|decay\w*|anneal\w*|gamma)"
)
_NONE = ("constant", "none", "fixed", "false", "0.0", "1.0", "0", "1", "null", "")
_OPTIMIZERS = re.compile(
    r"DP\w*Optimizer\w*|PrivacyEngine|GaussianMechanism|\w*PrivacyMechanism|SVTPrivacy"
    r"|DifferentialPrivacy\w+|LocalDpMod|\w*PrivacyAccountant"
)


_OF_LISTS = ("append", "clear", "extend", "insert", "pop", "remove", "reverse")


def unsettle(source: Source, reading: Reading) -> None:
    """Withdraw what the file changes after it was given, and name the line that does."""
    found = [*reading.changes, *(_changes(source.script) if source.script else _scheduled(source))]
    for quantity, line, text in sorted(set(found)):
        at = f"line {line} changes it" if line else "the file changes it"
        reading.unknown(quantity, f"{at}: {' '.join(text.split())[:80]}")
    changed = {quantity for quantity, _, _ in found}
    if changed:
        reading.claims = [one for one in reading.claims if not one.computed]
    if "noise multiplier" in changed:
        reading.mechanisms = [
            replace(one, noise=None, known_epsilon=None) for one in reading.mechanisms
        ]
    if "sampling law" in changed:
        reading.mechanisms = [replace(one, law=None, ratio=None) for one in reading.mechanisms]


def _changes(script: Script) -> Iterator[tuple[str, int, str]]:
    """Quantity, line and text of every change: assignments, setters, schedulers, subclasses."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
            for name in _stored(script, node):
                yield from _quantity(name, node)
        elif isinstance(node, ast.ClassDef):
            bases = [script.path(base).rpartition(".")[2] for base in node.bases]
            if any(_OPTIMIZERS.fullmatch(one) for one in bases):
                yield "noise multiplier", node.lineno, f"class {node.name}({', '.join(bases)})"
    for call in script.calls:
        scheduled = call.path.startswith("opacus.schedulers.") or _SCHEDULER.match(call.path)
        setter = _SETTER.match(call.name)
        owner = call.path.split(".")[:-1]
        if scheduled:
            yield "noise multiplier", call.line, ast.unparse(call.node)
        elif setter and "." in call.path:
            yield from _quantity(setter[2], call.node)
        elif call.path.endswith("setattr") and len(call.positional) > 1:
            yield from _quantity(str(call.positional[1]), call.node)
        elif call.name == "update" and "." in call.path:
            given = [one for one in call.positional if isinstance(one, dict)]
            for name in (*call.named, *(str(key) for one in given for key in one)):
                yield from _quantity(name, call.node)
        elif owner and call.name in _OF_LISTS and owner[-1] == "history":
            yield "claim", call.line, ast.unparse(call.node)
        elif owner and call.name in _OF_LISTS and owner[-1].endswith("postprocessors"):
            yield "noise multiplier", call.line, ast.unparse(call.node)


def _quantity(name: str, node: ast.AST) -> Iterator[tuple[str, int, str]]:
    for quantity, names in _QUANTITIES.items():
        if names.match(name):
            yield quantity, getattr(node, "lineno", 0), ast.unparse(node)


def _stored(script: Script, node: ast.AST) -> Iterator[str]:
    """Attributes and keys that a statement sets; not those that a class gives itself first."""
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store | ast.Del):
            first = next((p for p in script.parents(node) if isinstance(p, ast.FunctionDef)), None)
            own = isinstance(one.value, ast.Name) and one.value.id in ("self", "cls")
            if not (own and first and first.name in ("__init__", "__post_init__", "setup")):
                holder = script.value(one.value)
                made = holder.name if isinstance(holder, Call) else ""
                yield "noise" if _OPTIMIZERS.fullmatch(made) else one.attr
        elif isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store | ast.Del):
            name = script.value(one.slice)
            yield name if isinstance(name, str) else script.path(one.value).rpartition(".")[2]


def _scheduled(source: Source) -> Iterator[tuple[str, int, str]]:
    """Schedules of a configuration."""
    for name, value in source.settings.items():
        if _SCHEDULE.fullmatch(name) and str(value).lower() not in _NONE:
            sampled = re.search("sampl|cohort|fraction", name)
            yield "sampling law" if sampled else "noise multiplier", 0, f"{name}: {value}"


def unread_claims(source: Source, reading: Reading) -> None:
    """Say which comments and texts of a script state an epsilon: none is read as a claim."""
    if source.script is None:
        return
    words = r"(?:\b(?:epsilon|eps)\b|ε)\s*(?:[=:≈~<≤]|is|of)+\s*(\d+(?:\.\d+)?)"
    tokens = tokenize.generate_tokens(io.StringIO(source.text).readline)
    for token in tokens:
        kinds = (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1))
        if token.type in kinds:
            for found in re.finditer(words, token.string, re.IGNORECASE):
                line = token.start[0] + token.string[: found.start()].count("\n")
                text = f"line {line} says epsilon {found[1]} in a comment or a text, which is"
                reading.conditions.append(f"{text} not read as a claim")


# --- Traps that any script can show, whatever its framework. -------------------------------------

_NOISE = re.compile(
    r"^(normal_?|randn(_like)?|laplace|standard_normal|(add_|gaussian_|add_gaussian_|add_dp_)noise"
    r"(_inplace|_to_params)?|gaussian_noise|add_gaussian_noise(_inplace|_to_params)?|noise_like)$"
)
_CLIP = re.compile(
    r"^(clip_?|clip_(by_)?(global_)?norm_?|clip_grad_norm_?|clip_update|clip_model_update|clip_l2"
    r"|clip_gradients?|compute_clip_model_update|clip_by_global_norm|l2_clip|clip_delta"
    r"|clip_weights|clip_parameters|constrain_sensitivity)$"
)
_CLIENT = re.compile(
    r"\b(client|user|patient|participant|device|hospital)[- ]level\s+"
    r"(differential(ly)?[ -]priva\w+|dp\b|privacy|guarantee|\(?epsilon|protection)",
    re.IGNORECASE,
)
_HALF = {"float16", "bfloat16", "half"}
_UPDATE = re.compile(
    r"(aggregated?|deltas?|grads?|gradients?|mean|model|module|net|network|noise|params?|parameters"
    r"|state|sum|total|updates?|weights)$"
)
_RESUMES = {"load_checkpoint", "load_state_dict", "restore_checkpoint", "latest_checkpoint"}


def find(script: Script, reading: Reading) -> None:
    """Add the alarms of all traps of this module."""
    _noise_order(script, reading)
    _half_precision(script, reading)
    _data_dependent_clipping(script, reading)


def promises_clients(text: str) -> bool:
    """Whether a text promises privacy of clients or users, not of records."""
    return _CLIENT.search(text) is not None


def _noise_order(script: Script, reading: Reading) -> None:
    """Noise that is added before, or inside, the clipping of the same value."""
    for call in script.calls:
        if not _CLIP.match(call.name):
            continue
        inside = [node for argument in call.node.args for node in ast.walk(argument)]
        if any(_is_noise(script, node) for node in inside):
            text = f"{call.name} clips a value to which noise was added: the noise is scaled down "
            text += "with it, and the sum is not protected by it"
            reading.alarm("noise-before-clipping", text, call.line)
            continue
        names = {node.id for node in inside if isinstance(node, ast.Name)}
        for name, line in _noised(script, call):
            if name in names:
                text = f"{name!r} gets noise on line {line} and is clipped on line {call.line}: "
                text += "clipping scales the noise down"
                reading.alarm("noise-before-clipping", text, line)


def _noised(script: Script, clip: Call) -> Iterator[tuple[str, int]]:
    """Names to which noise is added before a clipping in its function, and not clipped before."""
    for node in ast.walk(clip.scope):
        if isinstance(node, ast.Assign | ast.AugAssign) and node.lineno < clip.line:
            if script.scope(node) is not clip.scope:
                continue
            value, targets = node.value, _targets(node)
            if any(_is_noise(script, one) for one in ast.walk(value)) and _adds(node):
                for name in targets:
                    if not _clipped_before(script, clip, name, node.lineno):
                        yield name, node.lineno


def _adds(node: ast.Assign | ast.AugAssign) -> bool:
    """Whether the statement adds noise to a value, and does not only draw it."""
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Add | ast.Sub)
    added = [one for one in ast.walk(node.value) if isinstance(one, ast.BinOp)]
    sums = any(isinstance(one.op, ast.Add | ast.Sub) for one in added)
    helper = isinstance(node.value, ast.Call) and "noise" in ast.unparse(node.value.func)
    return sums or helper


def _targets(node: ast.Assign | ast.AugAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]


def _clipped_before(script: Script, clip: Call, name: str, line: int) -> bool:
    return any(
        _CLIP.match(call.name)
        and call.scope is clip.scope
        and call.line <= line
        and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(call.node))
        for call in script.calls
    )


def _is_noise(script: Script, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return _NOISE.match(script.path(node.func).rpartition(".")[2]) is not None


def _half_precision(script: Script, reading: Reading) -> None:
    """Noise in half precision, or a model whose update is in half precision."""
    message = "in half precision: its grid shows which value the noise was added to"
    models = {
        call.path.rpartition(".")[0]
        for call in script.calls
        if call.name in ("parameters", "named_parameters", "state_dict", "load_state_dict")
    }
    for call in script.calls:
        words = {node.attr for node in ast.walk(call.node) if isinstance(node, ast.Attribute)}
        words |= {n.value for n in ast.walk(call.node) if isinstance(n, ast.Constant)
                  and isinstance(n.value, str)}  # fmt: skip
        owner = script.path(call.node.func).rpartition(".")[0]
        if _NOISE.match(call.name) and words & _HALF:
            reading.alarm("half-precision", f"noise is drawn {message}", call.line)
            continue
        casts = call.name in ("half", "bfloat16") and not call.node.args
        casts = casts or (call.name in ("to", "astype", "type", "cast") and bool(words & _HALF))
        if casts and owner and (owner in models or _holds_update(owner)):
            subject = "noise" if "noise" in owner else owner
            reading.alarm("half-precision", f"{subject} is cast {message}", call.line)


def _holds_update(owner: str) -> bool:
    """Whether a name is that of noise, a model or its update, and not of data."""
    return _UPDATE.match(re.split(r"[._]", owner.lower().rstrip("0123456789_"))[-1]) is not None


def _data_dependent_clipping(script: Script, reading: Reading) -> None:
    """A clipping norm that is a median or quantile of the clients' norms, also through names."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign):
            targets = " ".join(ast.unparse(one) for one in node.targets)
        elif isinstance(node, ast.keyword):
            targets = node.arg or ""
        else:
            continue
        if not re.search(r"clip|bound|threshold|max_norm|grad_norm", targets.lower()):
            continue
        parts = [one for value in _origins(script, node.value) for one in ast.walk(value)]
        calls = [one for one in parts if isinstance(one, ast.Call)]
        names = {script.path(one.func).rpartition(".")[2]: one.lineno for one in calls}
        found = next((name for name in names if name in _QUANTILES), None)
        if found is not None and not any(_is_noise(script, one) for one in parts):
            text = f"the clipping norm {targets!r} is the {found} of the clients' own values, a "
            text += "release without noise that no accountant counts"
            reading.alarm("unpaid-clipping", text, names[found])


_QUANTILES = {"median", "quantile", "percentile", "nanmedian", "nanquantile", "kthvalue"}


def _origins(script: Script, value: ast.expr, depth: int = 3) -> Iterator[ast.expr]:
    """An expression, and what was assigned to the names in it."""
    yield value
    names = {one.id for one in ast.walk(value) if isinstance(one, ast.Name)} if depth else set()
    for node in ast.walk(script.tree) if names else ():
        if isinstance(node, ast.Assign) and names & set(_targets(node)):
            yield from _origins(script, node.value, depth - 1)


def starts_once(script: Script, reading: Reading, starts: list[Call]) -> bool:
    """Whether training starts once; the losses of several add up, and are not counted."""
    again = starts[1:] or [one for one in starts if script.loops(one.node)]
    for one in again[:1]:
        reading.unknown("rounds", f"line {one.line} starts training again, on the same data")
    return not again


def resumption(script: Script, reading: Reading, made: list[Call]) -> None:
    """What training that resumes did before: spent where an accountant is new, else not read."""
    first = {"from_state_dict", *_RESUMES}
    for call in script.calls:
        text = ast.unparse(call.node)
        engine = call.name == "load_checkpoint" and call.given("module")  # that of Opacus' engine
        if call.name in first and (engine or _ACCOUNTS.search(text)):
            reason = f"line {call.line} restores an accountant, whose releases are not in the file"
            reading.unknown("rounds", reason)
            reading.claims = [one for one in reading.claims if not one.computed]
            reading.mechanisms = [replace(one, rounds=None) for one in reading.mechanisms]
            return
    for call in script.calls:
        stored = call.name in ("load", "restore", *_RESUMES)
        if made and stored and _STORED.search(ast.unparse(call.node).lower()):
            text = f"training resumes from stored state (line {call.line}) with a new "
            text += f"{made[0].name}: the releases before are not counted"
            reading.alarm("fresh-accountant", text, made[0].line)
            return


_ACCOUNTS = re.compile(r"accountant|privacy_?engine", re.IGNORECASE)
_STORED = re.compile("checkpoint|resume|ckpt|last_round|latest|global_model")


def made_each_round(script: Script, call: Call) -> bool:
    """Whether a call runs once per round: in a loop, or in a method that each round calls."""
    if script.loops(call.node):
        return True
    functions = {"fit", "train", "train_one_round", "local_train", "client_update", "train_fn"}
    for parent in script.parents(call.node):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            if _of_round(script, parent, frozenset()):
                return True
            if parent.name in functions and any(
                script.loops(one.node) for one in script.calls if one.path == parent.name
            ):
                return True
    return False


def _of_round(script: Script, function: ast.AST, seen: frozenset[ast.AST]) -> bool:
    """Whether a function is the one of every round, or is called by it, directly or not."""
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) or function in seen:
        return False
    decorators = [script.path(one) for one in function.decorator_list]
    methods = {"fit"} if _in_class(script, function) else set()
    if function.name in methods or any(one.endswith("app.train") for one in decorators):
        return True
    names = (function.name, f"self.{function.name}")
    callers = [one.scope for one in script.calls if one.path in names]
    return any(_of_round(script, one, seen | {function}) for one in callers)


def _in_class(script: Script, node: ast.AST) -> bool:
    return any(isinstance(parent, ast.ClassDef) for parent in script.parents(node))
