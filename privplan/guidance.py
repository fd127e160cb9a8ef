"""Calls from Python that are wrong, answered with what to write."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Container, Mapping
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from privplan.errors import InputError, PrivplanError, did_you_mean

SYNONYMS = {
    "sample_rate": "sampling_ratio",
    "q": "sampling_ratio",
    "sigma": "noise_multiplier",
    "noise": "noise_multiplier",
    "get_noise_multiplier": "noise_multiplier",
    "lr": "learning_rate",
    "num_rounds": "rounds",
    "n_jobs": "jobs",
    "n_seeds": "seeds",
    "num_seeds": "seeds",
    "executor": "jobs",
    "num_workers": "workers",
    "workers": "jobs",
    "processes": "jobs",
    "backend": "on",
    "cluster": "on",
    "dask": "on",
    "slurm": "on",
    "scheduler": "on",
    "method": "algorithm",
    "methods": "algorithms",
    "algos": "algorithms",
    "target": "label",
    "from_data": "data",
    "standardize": "normalize",
    "standardise": "normalize",
    "delimiter": "sep",
    "separator": "sep",
    "language": "lang",
    "PRVAccountant": "RDPAccountant",
    "GaussianAccountant": "RDPAccountant",
    "id": "client",
    "user": "client",
    "output": "folder",
    "folder": "output",
    "out": "output",
    "gpu": "device",
    "gpus": "device",
    "distributed": "on",
    "approved": "plan",
    "approved_plan": "plan",
    "book": "address",
    "budget": "epsilon",
    "steps": "rounds",
    "eps": "epsilon",
    "target_epsilon": "epsilon",
    "compute_epsilon": "epsilon",
    "get_epsilon": "epsilon",
    "target_delta": "delta",
    "n": "clients",
    "unknown": "solve_for",
    "summary": "explain",
    "table": "to_frame",
    "to_pandas": "to_frame",
    "to_csv": "to_frame",
    "show": "plot",
    "ok": "kept",
    "passed": "kept",
    "accuracy": "score",
    "parameters": "model",
    "from_dict": "parse",
    "from_yaml": "load",
    "from_csv": "load",
    "read_csv": "load",
    "from_pandas": "from_table",
    "from_dataframe": "from_table",
    "read": "load",
    "open": "load",
    "load_plan": "load",
    "load_spec": "load",
    "to_dict": "plain",
    "to_yaml": "save",
    "plan": "solve",
    "run": "train",
    "simulate": "train",
    "verdict": "verify",
    "init": "preset",
}
"""What other libraries call an argument, or a part of a value or of the package."""
SAID_OF_OPTIONS = {
    "checkpoint": "runs keep checkpoints, and the same command resumes by itself",
    "data": "privplan check-data DATA prints what belongs in a spec",
    "drop": "--features A,B names the columns that are inputs",
    "dry_run": "privplan solve trains nothing, nor does simulate --plan-only FILE",
    "exclude": "--features A,B names the columns that are inputs",
    "json": "--format json",
    "lang": "pages are in English, and a browser translates them",
    "list": "simulate --algorithms, and --help of --dataset and --preset, list names",
    "normalize": "--statistics FILE.json says how columns are standardised",
    "nproc": "processes share a run under torchrun --nproc-per-node N -m simulate PLAN",
    "pdf": "the page is HTML, which a browser prints as PDF",
    "resume": "the same command resumes by itself",
    "sep": "the separator of a table is seen in its header",
}
"""What to do instead of an option that no command has, or that this one lacks."""
REPLACE = 'write spec.replace(rounds=80, groups={"strict": {"epsilon": 1}})'
_REALISED = "privplan.verify('run').groups['strict'].realised_upper"
INSTEAD = {
    "Spec": 'privplan.Spec.parse({"name": ..., "groups": [...]}), or privplan.Spec.load(path)',
    "Plan": "privplan.solve(spec), or privplan.Plan.load(path)",
    "load": "privplan.Plan.load(path), privplan.Spec.load(path) or privplan.load_run(folder)",
    "Group": '{"name": "strict", "clients": 100, "epsilon": 2} in Spec.parse',
    "train": "simulate.train(plan, dataset='digits')",
    "compare": "simulate.compare(plan, ['planned', 'FedAvg'])",
    "explain": "plan.explain()",
    "plot": "plan.plot()",
    "plain": ".to_json()",
    "verify": "privplan.verify('run')",
    "to_json": "json.dumps(spec.plain())",
    "history": "plan.history('strict')",
    "epsilon": "privplan.account(history, delta=1e-5).epsilon",
    "noise_multiplier": "privplan.calibrate(1, delta=1e-5, sampling_ratio=0.02, rounds=50)",
    "score": "run.record.accuracy",
    "predict": "run.model()(records)",
    "algorithms": "privplan simulate --algorithms in the shell, which lists them",
    "register": "from simulate.algorithms.registry import register",
    "Hyperparameter": "from simulate.algorithms.registry import Hyperparameter",
    "Algorithm": "a function, as docs/reference/own-method.md shows, for simulate.compare",
    "RDPAccountant": "privplan.account(noise_multiplier=1.5, sampling_ratio=0.02, "
    "rounds=50, delta=1e-5)",
    "to_latex": "open('FOLDER/results.tex') in the folder of the comparison",
    "Spec.save": "yaml.safe_dump(spec.plain())",
    "Plan.epsilon": "plan.certificate['strict'].epsilon",
    "Plan.delta": "plan.groups['strict'].delta",
    "Plan.noise_multiplier": "plan.groups['strict'].noise_multiplier",
    "GroupVerdict.epsilon": ".budget, .planned or .realised_upper",
    "TrainedRun.save": "torch.save(run.model().state_dict(), 'model.pt')",
    **{f"{kind}.history": "run.metrics" for kind in ("Run", "TrainedRun")},
    **{f"{kind}.epsilon": _REALISED for kind in ("Run", "TrainedRun", "Verdict")},
}
"""What to write for a name that does not exist, of a kind of value or of all."""
_OF_DATA = ("label", "client", "group", "groups", "features", "statistics", "task")
"""Arguments of own data, which some functions take as a whole."""
_LOADED = "simulate.Data.load(path, label=..., client=...), or .from_table(table, ...)"
NUMBERS = {
    "noise_multiplier",
    "sampling_ratio",
    "delta",
    "epsilon",
    "clients",
    "rounds",
    "contributions",
}
"""Arguments that are numbers wherever they are asked for."""
_TAKE_ARRAYS = ("account", "bounds")


def _instead(owner: Any, name: str) -> str:
    """What to write for a name that an owner does not have."""
    from importlib.metadata import entry_points

    answer = _answer(owner, name)
    meant = SYNONYMS.get(name, name)
    if answer is None and meant in entry_points(group="privplan.commands").names:
        answer = f"on the command line: privplan {meant} --help"
    if answer:
        return f"; write {answer}"
    return did_you_mean(name, public_names(owner)) or "; docs/api.md lists all names"


def _answer(owner: Any, name: str) -> str | None:
    """The call or the part that a name means, as it is written."""
    # Not imported above, as the package imports this module.
    package = import_module("privplan")
    meant = SYNONYMS.get(name, name)
    of_kind = INSTEAD.get(f"{_kind(owner)}.{meant}")
    if of_kind:
        return of_kind
    public = public_names(owner)
    if meant in public:
        return f"{getattr(owner, '__name__', '')}.{meant}"
    if "names" in public and name in owner.names:
        return f"[{name!r}]"
    # A plan does not repeat what its spec says.
    spec = getattr(owner, "spec", None)
    if name in getattr(type(spec), "model_fields", ()):
        return f"plan.spec.{name}"
    if INSTEAD.get(meant):
        return INSTEAD[meant]
    if meant in package.STABLE:
        return example(getattr(package, meant))
    return None


def place_in_spec(name: str) -> str | None:
    """The field of a spec, of a part of it or of its groups, of a name; else None."""
    fields: dict[str, Any] = import_module("privplan").Spec.model_fields
    if name in fields:
        return name
    for part in ("local", "planning"):
        if name in fields[part].annotation.model_fields:
            return f"{part}.{name}"
    if name in import_module("privplan.spec.groups").Group.model_fields:
        return f"groups.GROUP.{name}"
    return None


def meaning(name: str, names: Container[str]) -> str | None:
    """The one of some names that another library's name means; None where none does."""
    seen: set[str] = set()
    while name not in names:
        seen.add(name)
        name = SYNONYMS.get(name, "")
        if not name or name in seen:
            return None
    return name


def public_names(owner: Any) -> list[str]:
    """The public names of an owner."""
    return [name for name in dir(owner) if not name.startswith("_")]


def _kind(owner: Any) -> str:
    return str(getattr(owner, "__name__", type(owner).__name__))


def example(function: Callable[..., Any]) -> str | None:
    """The call of a function in the first example of its docstring, on one line."""
    call = rf">>> .*?(\w+\.{function.__name__}\((?:[^()]|\([^()]*\))*\))"
    match = re.search(call, function.__doc__ or "")
    if match is None:
        return None
    return re.sub(r"\n *\.\.\. *", "", match[1])


class NoSuchNameError(AttributeError):
    """A value, class or module lacks a name.

    What to write instead is found when the error is read.
    """

    def __str__(self) -> str:
        owner, name = self.args
        return f"{_kind(owner)} has no attribute {name!r}{_instead(owner, name)}"


class GuidedKind(type):
    """Of a class whose missing names say what to write."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            raise NoSuchNameError(cls, name)


class Guided:
    """A value whose missing names say what to write."""

    __slots__ = ()

    # A type checker would take every name to be there.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            try:
                # Private attributes of pydantic.
                return super().__getattr__(name)
            except AttributeError:
                # A property that failed.
                if hasattr(type(self), name):
                    return object.__getattribute__(self, name)
                raise NoSuchNameError(self, name) from None


F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def checked_call(function: F) -> F:
    """The function or method, whose wrong calls are answered in a sentence."""
    signature = inspect.signature(function)
    parameters = signature.parameters
    called_as = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    takes_any = any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    )

    @wraps(function)
    def called(*values: Any, **named: Any) -> Any:
        for name, value in named.items():
            if name in parameters or (takes_any and not meaning(name, parameters)):
                continue
            hint = instead_of_argument(function, name, parameters)
            # Records and their clients are not repeated.
            is_short = isinstance(value, str) or not hasattr(value, "__len__")
            shown = value if is_short else type(value).__name__
            raise InputError.one(name, f"is not an argument{hint}", shown)
        try:
            arguments = signature.bind(*values, **named).arguments
        except TypeError as error:
            call = example(function)
            hint = f"; write {call}" if call else ""
            raise PrivplanError(f"{called_as}: {error}{hint}") from None
        takes_arrays = function.__name__ in _TAKE_ARRAYS
        for name, value in {**arguments, **named}.items():
            if name in NUMBERS and not _can_be(value, parameters, name, takes_arrays):
                raise InputError.one(name, "must be a number", value)
        return function(*values, **named)

    return called  # type: ignore[return-value]


def checked_init(kind: type[T]) -> type[T]:
    """The class, whose wrong arguments are answered in a sentence."""
    kind.__init__ = checked_call(kind.__init__)  # type: ignore[method-assign]
    return kind


def instead_of_argument(
    function: Callable[..., Any], name: str, parameters: Mapping[str, object]
) -> str:
    """What to write for an argument that a function does not take."""
    meant = meaning(name, parameters)
    if meant is not None:
        return f"; write {meant}"
    if meaning(name, _OF_DATA) is not None:
        if "data" in parameters:
            return f"; write data={_LOADED}"
        if function.__qualname__ == "Data.__init__":
            return f"; write {_LOADED}"
    near = did_you_mean(name, parameters)
    if near:
        return near
    place = place_in_spec(SYNONYMS.get(name, name))
    if place is not None and "plan" in parameters:
        return f'; the plan says it: write spec.replace({{"{place}": ...}}) and solve'
    call = example(function)
    names = ", ".join(parameter for parameter in parameters if parameter != "self")
    return f"; write {call}" if call else f"; it takes {names}"


def _can_be(
    value: Any,
    parameters: Mapping[str, inspect.Parameter],
    name: str,
    takes_arrays: bool,
) -> bool:
    """Whether a value can be that of an argument that is a number.

    Args:
        value: that was passed.
        parameters: of the function.
        name: of the argument, which may be none of the parameters.
        takes_arrays: whether the function takes arrays of numbers.
    """
    parameter = parameters.get(name)
    if parameter is not None:
        # Such as rounds="all".
        if isinstance(value, str) and "str" in str(parameter.annotation):
            return True
        if value is None and parameter.default is parameter.empty:
            return False
    if isinstance(value, bool | str | bytes | complex):
        return False
    if hasattr(value, "__len__"):
        return takes_arrays
    return value is None or hasattr(value, "__float__")
