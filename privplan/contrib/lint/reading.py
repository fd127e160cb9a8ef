"""What a framework module reads from a file: mechanisms, claims, alarms, undetermined values."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from privplan.accounting.release import Relation, Unit
from privplan.contrib.lint.script import Call, Script, Source
from privplan.registry import Registry


@dataclass(frozen=True)
class Options:
    """Values from the command line; they precede those of the file.

    Attributes:
        population: units (clients, or records of record-level mechanisms) that may be drawn.
        rounds: number of noisy releases.
        delta: failure probability, in (0, 1).
    """

    population: int | None = None
    rounds: int | None = None
    delta: float | None = None


@dataclass(frozen=True)
class Alarm:
    """One reason why the configuration does not give what it appears to promise.

    Attributes:
        code: short name of the trap, stable across versions.
        message: what is wrong, with the values found.
        line: line of the file; 0 where the alarm is of the whole file.
    """

    code: str
    message: str
    line: int = 0


@dataclass(frozen=True)
class Claim:
    """An epsilon that the configuration states, or that its own accountant would print.

    Attributes:
        epsilon: the claimed value.
        delta: its failure probability; None where the file does not state it.
        relation: neighbouring relation that the claim names; None where it names none.
        source: where the value is from, for messages.
        releases: number of releases that it covers; None for all.
    """

    epsilon: float
    delta: float | None
    relation: Relation | None
    source: str
    releases: int | None = None


@dataclass(frozen=True)
class Mechanism:
    """One noisy release per round as executed; None for values that are not determined.

    Attributes:
        group: name of the clients or site that the mechanism protects.
        unit: unit of privacy.
        protects: what is protected from whom, one sentence.
        law: sampling law that the code executes: a name of ``laws.LAWS``, ``with_replacement``,
            ``shuffle`` or ``round_robin``.
        noise: least and largest noise multiplier on the sum (standard deviation over the clipping
            norm); equal where it is known exactly.
        cohort: units drawn per round, or their expected number.
        population: units that may be drawn.
        ratio: sampling ratio, where it is stated instead of cohort and population.
        rounds: number of releases.
        local: whether each unit adds noise of its own, so that nothing is amplified.
        known_epsilon: epsilon of one release by another analysis, such as that of Laplace noise.
    """

    group: str
    unit: Unit
    protects: str
    law: str | None
    noise: tuple[float, float] | None
    cohort: float | None = None
    population: int | None = None
    ratio: float | None = None
    rounds: int | None = None
    local: bool = False
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
    """All that was read from a file.

    Attributes:
        mechanisms: noisy releases, usually one.
        claims: stated epsilons.
        alarms: traps that the file shows.
        conditions: what the bounds assume, because the file does not show it.
        undetermined: values that cannot be read, with the reason.
        delta: failure probability that the file states.
    """

    mechanisms: list[Mechanism] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    undetermined: list[str] = field(default_factory=list)
    delta: float | None = None

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


def _framework(component: object) -> Framework:
    if not callable(component):
        raise TypeError("must be a function of a source and options that returns a Reading")
    found: Callable[..., Any] = component
    return found


FRAMEWORKS: Registry[Framework] = Registry(
    "of", "privplan.frameworks", "privplan.contrib.lint.frameworks", _framework
)
"""Framework modules by name."""


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
            reading.alarm(
                "noise-before-clipping",
                f"{call.name} clips a value to which noise was added: the noise is scaled down "
                "with it, and the sum is not protected by it",
                call.line,
            )
            continue
        names = {node.id for node in inside if isinstance(node, ast.Name)}
        for name, line in _noised(script, call):
            if name in names:
                reading.alarm(
                    "noise-before-clipping",
                    f"{name!r} gets noise on line {line} and is clipped on line {call.line}: "
                    "clipping scales the noise down",
                    line,
                )


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
    """A clipping norm that is a median or quantile of the clients' norms."""
    for call in script.named("median", "quantile", "percentile", "nanmedian"):
        assigned = next(
            (p for p in script.parents(call.node) if isinstance(p, ast.Assign | ast.keyword)), None
        )
        target = ""
        if isinstance(assigned, ast.Assign):
            target = " ".join(ast.unparse(one) for one in assigned.targets)
        elif isinstance(assigned, ast.keyword):
            target = assigned.arg or ""
        about = f"{target} {' '.join(ast.unparse(one) for one in call.node.args)}".lower()
        noisy = any(_is_noise(script, n) for n in ast.walk(assigned)) if assigned else False
        if re.search(r"clip|bound|threshold|max_norm", target.lower()) and not noisy:
            reading.alarm(
                "unpaid-clipping",
                f"the clipping norm {target!r} is the {call.name} of the clients' own values "
                f"({about.split()[-1][:40]}), a release without noise that no accountant counts",
                call.line,
            )


def resumes(script: Script) -> int:
    """Line on which training resumes from stored state; 0 where it does not."""
    for call in script.calls:
        stored = call.name in _RESUMES or call.path in ("torch.load", "numpy.load", "pickle.load")
        about = ast.unparse(call.node).lower()
        if stored and re.search(r"checkpoint|resume|ckpt|last_round|latest|global_model", about):
            return call.line
    return 0


def accountant_restored(script: Script) -> bool:
    """Whether the state of an accountant is loaded as well."""
    return any(
        call.name in _RESUMES and re.search(r"accountant|privacy_?engine", ast.unparse(call.node))
        for call in script.calls
    )


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
