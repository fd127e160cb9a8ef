"""Opacus: ``make_private`` and ``make_private_with_epsilon``, a mechanism for records.

Source: opacus 1.5, ``privacy_engine.py``: ``sample_rate = 1 / len(data_loader)``, Poisson sampling
unless ``poisson_sampling=False``. Noise is on the sum of clipped gradients, so that
``noise_multiplier`` is that of the release.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from privplan.accounting.release import Relation
from privplan.contrib.lint import reading as checks
from privplan.contrib.lint.reading import FRAMEWORKS, Claim, Options, Reading
from privplan.contrib.lint.script import Call, Script, Source, number, repetitions, whole
from privplan.errors import PrivplanError

_PROTECTS = "one record, from everyone who sees the model, the server included"
_PER_CLIENT = "; a client with many records is not protected as a whole"
_FEDERATED = ("flwr", "nvflare", "pfl", "fedml", "openfl")


def read(source: Source, options: Options) -> Reading:
    """Read a training script, a configuration or a log."""
    if source.script is not None:
        return read_script(source, source.script, options)
    return _read_config(source, options) if source.kind == "config" else _read_log(source, options)


def read_script(source: Source, script: Script, options: Options) -> Reading:
    """Read a script that uses a ``PrivacyEngine``."""
    reading = Reading()
    checks.find(script, reading)
    federated = any(script.imports(name) for name in _FEDERATED)
    for call in script.named("make_private", "make_private_with_epsilon"):
        _private(script, reading, call, options, federated)
        reading.changes += _bypasses(script, call)
    if reading.mechanisms and checks.promises_clients(source.text):
        text = "the file promises privacy of clients or users; Opacus protects single records"
        reading.alarm("record-level", text)
    checks.resumption(script, reading, script.named("PrivacyEngine"))
    return reading


def _private(
    script: Script, reading: Reading, call: Call, options: Options, federated: bool
) -> None:
    sampled = call.argument("poisson_sampling", None, True)
    loader = call.argument("data_loader")
    batch, population = _batches(script, loader, options)
    ratio = None
    if batch and population and population >= batch:
        dropped = isinstance(loader, Call) and loader.argument("drop_last", None, False)
        ratio = 1 / (population // batch if dropped else math.ceil(population / batch))
    elif batch and population:
        ratio = 1.0
    epochs = _epochs(script, call)
    steps = options.rounds
    if steps is None and ratio and epochs:
        steps = epochs * round(1 / ratio)
    law = {True: "poisson", False: "shuffle"}.get(sampled) if isinstance(sampled, bool) else None
    if law == "shuffle" and ratio == 1:  # one batch of all records: nothing is drawn
        law = "full"
    if law is None:
        reading.unknown("sampling law", "poisson_sampling is not a constant")
    if law == "shuffle":
        _not_sampled(reading, call)
    delta = number(call.argument("target_delta", None, None))
    reading.delta = reading.delta or delta or _delta(script)
    noise = number(call.argument("noise_multiplier"))
    band = None if noise is None else (noise, noise)
    if call.name == "make_private_with_epsilon":
        target = number(call.argument("target_epsilon"))
        planned = whole(call.argument("epochs"))
        if target is not None:
            reading.claims.append(Claim(target, delta, Relation.ADD_REMOVE, "target_epsilon"))
        if epochs and planned and epochs > planned:
            text = f"the noise is calibrated for {planned} epochs, and {epochs} are trained"
            reading.alarm("overrun", text, call.line)
        band = _calibrated(target, delta, ratio, planned)
    elif ratio and noise and steps:
        claimed = _opacus_epsilon(script, noise, ratio, steps, options.delta or reading.delta)
        if claimed is not None:
            reading.claims.append(claimed)
    if call.argument("clipping", None, "flat") not in ("flat", "per_layer"):
        # Opacus' adaptive norm divides a count of sensitivity 1, taken as 1/2, by the batch's size.
        reading.changes.append(("noise multiplier", call.line, "clipping that follows the data"))
    _each_round(script, reading, call, federated, options)
    reading.mechanism(
        "record", _PROTECTS + (_PER_CLIENT if federated else ""), law, band,
        cohort=None if ratio is None or population is None else population * ratio,
        population=population, ratio=ratio, rounds=steps,
    )  # fmt: skip


def _bypasses(script: Script, private: Call) -> Iterator[tuple[str, int, str]]:
    """Training without the optimiser and the loader that a call of ``make_private`` returns."""
    statement = script.statement(private)
    new = _texts(statement.targets) if isinstance(statement, ast.Assign) else set()
    given = {one.arg: ast.unparse(one.value) for one in private.node.keywords}
    own = {given.get("module", ""), given.get("optimizer", "")} - {""}
    old = {given.get("optimizer", ""), given.get("data_loader", "")} - new - {""} if new else set()
    trainers = {one.name for one in script.functions() if ".step()" in ast.unparse(one)}
    for call in script.calls:
        here, later = call.scope is private.scope, call.line > private.line
        steps = call.name == "step" and not call.positional
        made = script.value(getattr(call.node.func, "value", None))
        over = isinstance(made, Call) and f"{given.get('module')}.p" in _unparsed(made)
        uses = _texts([call.node]) if steps or call.name in trainers else set()
        if steps:
            uses |= _texts(one.iter for one in script.loops(call.node) if isinstance(one, ast.For))
        beside = (steps and over) or (here and uses & (old if later else own))
        if beside or (steps and ".original_" in call.path):
            yield "noise multiplier", call.line, _unparsed(call)
    stored = (one for one in ast.walk(script.tree) if isinstance(one, ast.Assign))
    for node in (one for one in stored if one.lineno > private.line):
        if _texts(node.targets) & new and ".optim" in ast.unparse(node.value):
            yield "noise multiplier", node.lineno, ast.unparse(node)


def _texts(nodes: Iterable[ast.AST]) -> set[str]:
    """The expressions in nodes, as texts."""
    parts = (part for node in nodes for part in ast.walk(node))
    return {ast.unparse(one) for one in parts if isinstance(one, ast.Name | ast.Attribute)}


def _unparsed(call: Call) -> str:
    return ast.unparse(call.node)


def _not_sampled(reading: Reading, call: Call) -> None:
    text = "poisson_sampling=False: batches are shuffled (or in order), each record is in one "
    text += "batch of every epoch, and the accountant still assumes Poisson sampling"
    reading.alarm("shuffled", text, call.line)


def _batches(script: Script, loader: Any, options: Options) -> tuple[int | None, int | None]:
    """Batch size and number of records of a ``DataLoader``."""
    batch = None
    if isinstance(loader, Call) and loader.name == "DataLoader":
        own = [loader.argument(name, None, None) for name in ("sampler", "batch_sampler")]
        if own[1] is None and "Distributed" not in getattr(own[0], "name", ""):
            batch = whole(loader.argument("batch_size", 1, 1))
    elif not isinstance(loader, Call):
        sizes = {whole(one.argument("batch_size", 1, 1)) for one in script.named("DataLoader")
                 if "test" not in str(one.positional) + str(one.named)}  # fmt: skip
        batch = sizes.pop() if len(sizes) == 1 else None
    return batch, options.population


def _epochs(script: Script, call: Call) -> int | None:
    """Epochs of the one training loop around the one step of the optimiser; else None."""
    outside = script.loops(call.node)  # whole trainings that are repeated
    found: list[int | None] = []
    for step in script.calls:
        before = step.scope is call.scope and step.line < call.line
        if step.name != "step" or "opt" not in step.path or before:
            continue
        nests = [script.loops(step.node)]
        if len([one for one in nests[0] if one not in outside]) < 2:
            around = [script.loops(one.node) for one in _callers(script, step)]
            nests = [nests[0][:1] + loops for loops in around if set(loops) - set(outside)]
        for nest in nests:
            counts = [repetitions(script, one) for one in nest if one not in outside]
            again = isinstance(nest[0], ast.For) and _AGAIN.search(ast.unparse(nest[0].iter))
            known = None not in counts[1:] and not again
            found.append(math.prod(one or 1 for one in counts) if known else None)
    return found[0] if len(found) == 1 else None


_AGAIN = re.compile(r"\b(chain|cycle|repeat|product)\(")


def _callers(script: Script, step: Call) -> list[Call]:
    """Calls of the function that makes a step; ``model.train()`` is none."""
    name = getattr(step.scope, "name", None)
    found = [one for one in script.calls if one.name == name and one.scope is not step.scope]
    return [one for one in found if one.path == name or not re.search(r"model|net", one.path)]


def _delta(script: Script) -> float | None:
    values = {number(one.argument("delta", 0)) for one in script.named("get_epsilon")}
    return values.pop() if len(values) == 1 else None


def _opacus_epsilon(
    script: Script, noise: float, ratio: float, steps: int, delta: float | None
) -> Claim | None:
    """What ``get_epsilon`` prints, where the script asks for it: Poisson, add or remove."""
    if not script.named("get_epsilon") or delta is None:
        return None
    from privplan.accounting.accountant import accountant
    from privplan.accounting.release import History, Release

    history = History.repeated(Release(noise, ratio), steps)
    try:
        found = accountant("pld").epsilon(history, delta, Relation.ADD_REMOVE)
    except PrivplanError:
        return None
    source = "get_epsilon of Opacus (Poisson sampling)"
    return Claim(found.upper, delta, None, source, computed=True)


def _calibrated(
    target: float | None, delta: float | None, ratio: float | None, epochs: int | None
) -> tuple[float, float] | None:
    """Noise multipliers that Opacus may choose: its accountants differ by this much at most."""
    if target is None or delta is None or ratio is None or epochs is None:
        return None
    from privplan.accounting.calibrate import calibrate

    steps = int(epochs / ratio)
    noise = partial(calibrate, "noise_multiplier", sampling_ratio=ratio, rounds=steps)
    try:
        least = noise(target, delta, accountant="pld")
        most = noise(max(target - 0.02, target / 2), delta, accountant="rdp")
    except PrivplanError:
        return None
    return (least, max(least, most))


def _each_round(
    script: Script, reading: Reading, call: Call, federated: bool, options: Options
) -> None:
    engines = [one for one in script.named("PrivacyEngine") if checks.made_each_round(script, one)]
    if not engines or not (federated or script.loops(engines[0].node)):
        return
    if not federated and _starts_anew(script, call):
        text = f"line {call.line}: every repetition of the outer loop trains a new model; epsilon "
        reading.conditions.append(f"{text}is of one of them, and the results of several cost more")
        return
    text = "a new PrivacyEngine is made in every round: its epsilon is of that round only, and the "
    text += "rounds before are not counted"
    reading.alarm("fresh-accountant", text, engines[0].line)


_STATE = re.compile(
    r"load|set_|deepcopy|\bcopy|restore|global|previous|checkpoint|server|state_dict"
)


def _starts_anew(script: Script, call: Call) -> bool:
    """Whether the loop around a call makes the model that it is given, from nothing before."""
    loops = script.loops(call.node)
    module = next((one.value for one in call.node.keywords if one.arg == "module"), None)
    module = module or next(iter(call.node.args), None)
    if not loops or not isinstance(module, ast.Name):
        return False
    made = False
    for node in ast.walk(loops[-1]):
        if isinstance(node, ast.Assign | ast.Expr) and node.lineno < call.line:
            text = ast.unparse(node)
            if re.search(rf"\b{re.escape(module.id)}\b", text) and _STATE.search(text):
                return False
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                targets = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)
                           and isinstance(one.ctx, ast.Store)}  # fmt: skip
                read = {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)}
                made = made or (module.id in targets and module.id not in read)
    return made


def _read_config(source: Source, options: Options) -> Reading:
    reading = Reading()
    noise = number(source.setting("noise_multiplier", "sigma", "dp_sigma"))
    batch = whole(source.setting("batch_size"))
    names = ("dataset_size", "num_records", "num_samples", "population", "train_size")
    population = options.population or whole(source.setting(*names))
    ratio = number(source.setting("sample_rate", "sampling_rate", "sampling_probability"))
    if ratio is None and batch and population:
        ratio = 1 / math.ceil(population / batch)
    epochs = whole(source.setting("epochs", "num_epochs"))
    steps = whole(source.setting("steps", "num_steps", "max_steps"))
    if steps is None and epochs and ratio:
        steps = epochs * round(1 / ratio)
    if "adaptive" in str(source.setting("clipping", "clipping_mode")).lower():
        reading.changes.append(("noise multiplier", 0, "clipping that follows the data"))
    sampled = source.setting("poisson_sampling")
    law = "shuffle" if sampled is False else "poisson"
    if law == "shuffle":
        reading.alarm("shuffled", "poisson_sampling is false: shuffled batches are accounted as "
                      "Poisson samples")  # fmt: skip
    unit = str(source.setting("privacy_unit", "unit", "protects", "level")).lower()
    if re.search(r"client|user|patient", unit):
        reading.alarm("record-level", f"the privacy unit is {unit!r}; Opacus protects records")
    if re.search(r"float16|half|fp16", str(source.setting("noise_dtype", "dtype")).lower()):
        reading.alarm("half-precision", "noise in half precision")
    reading.delta = number(source.setting("delta", "target_delta"))
    claimed = number(source.setting("epsilon", "target_epsilon"))
    if claimed is not None:
        reading.claims.append(Claim(claimed, reading.delta, None, "the configuration"))
    if source.has("noise_multiplier", "sigma", "dp_sigma", "max_grad_norm") or claimed is not None:
        reading.mechanism(
            "record", _PROTECTS, law, noise, population=population, ratio=ratio, rounds=steps
        )
    return reading


def _read_log(source: Source, options: Options) -> Reading:
    """Noise and epsilon of a log of Opacus' examples; sampling ratio and steps from options."""
    reading, text = Reading(), source.text
    pattern = r"(?:epsilon|eps|ε)\s*[=:]?\s*([\d.]+).{0,20}?(?:delta|δ)\s*[=:]?\s*([\d.e+-]+)"
    for epsilon, delta in re.findall(pattern, text, re.IGNORECASE)[-1:]:
        value, failure = _decimal(epsilon), _decimal(delta)
        if value is not None:
            reading.delta = failure
            reading.claims.append(Claim(value, failure, None, "the log"))
    named = r"(?:\bsigma|σ|noise[ _]multiplier)\s*[=:]\s*([\d.]+(?:e[+-]?\d+)?)"
    noises = {_decimal(one) for one in re.findall(named, text, re.IGNORECASE)} - {None}
    if not noises:
        reading.unknown("mechanism", "the log shows no noise multiplier")
        return reading
    noise = noises.pop() if len(noises) == 1 else None
    if noise is None:
        reading.unknown("noise multiplier", "the log has several")
    ratio = _logged(r"(?:sample|sampling)[ _](?:rate|ratio)", text)
    batch = _logged(r"batch[ _]size", text)
    if ratio is None and batch and options.population:
        ratio = 1 / math.ceil(options.population / batch)
    epochs = {int(one) for one in re.findall(r"\bepoch\b\W{0,4}(\d{1,9})\b", text, re.IGNORECASE)}
    steps = options.rounds
    if steps is None and ratio and epochs:
        steps = (max(epochs) - min(min(epochs), 1) + 1) * round(1 / ratio)
    reading.conditions.append("assumes Poisson sampling, Opacus' default: a log does not show it")
    reading.mechanism(
        "record", _PROTECTS, "poisson", noise, population=options.population, ratio=ratio,
        rounds=steps,
    )  # fmt: skip
    return reading


def _logged(name: str, text: str) -> float | None:
    """The one positive value that a log gives for a name."""
    values = re.findall(rf"{name}['\"]?\s*[=:]\s*([\d.]+(?:e[+-]?\d+)?)", text, re.IGNORECASE)
    found = {_decimal(one) for one in values} - {None}
    return (found.pop() or None) if len(found) == 1 else None


def _decimal(text: str) -> float | None:
    """The number of a piece of a log; None where it is none."""
    try:
        return number(float(text.rstrip(".,+-")))
    except ValueError:
        return None


FRAMEWORKS.register("opacus", read)
