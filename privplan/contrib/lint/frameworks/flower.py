"""Flower's own accounting: what its accountant prints, and the noise of ``LocalDpMod``.

Source: flwr 1.42, ``supercore.privacy_accounting`` and ``clientapp.mod.localdp_mod``.
"""

from __future__ import annotations

import ast
import math
import re
from typing import Any

from privplan.accounting.release import Relation
from privplan.contrib.lint import reading as checks
from privplan.contrib.lint.frameworks.opacus import read_script as read_opacus
from privplan.contrib.lint.reading import FRAMEWORKS, Claim, Options, Reading
from privplan.contrib.lint.script import UNKNOWN, Call, Name, Script, Source, number, whole


def config_of(accountant: Any) -> Call | None:
    """The ``PrivacyConfig`` of an accountant that is made in the file."""
    if not isinstance(accountant, Call):
        return None
    config = accountant.argument("config", 0)
    return config if isinstance(config, Call) else None


def add_claim(
    reading: Reading,
    config: Call,
    noise: float | None,
    sampled: int | None,
    rounds: int | None,
    call: Call,
) -> None:
    """What Flower's accountant prints, computed as it does."""
    delta = number(config.argument("target_delta", 0))
    population = whole(config.argument("population_size", 1))
    relation = _member(config.argument("neighboring_relation", 2))
    method = _member(config.argument("sampling_method", 3))
    reading.delta = reading.delta or delta
    values = (delta, population, noise, sampled, rounds)
    if method is None or relation is None or any(one is None for one in values):
        reading.unknown("Flower's own epsilon", "an argument of its accountant is not a constant")
        return
    said = flower_epsilon(noise or 0, sampled or 1, population or 1, rounds or 1, method, relation,
                          delta or 0.5)  # fmt: skip
    under = Relation.REPLACE_ONE if relation == "replace_one" else Relation.ADD_REMOVE
    source = f"Flower's accountant ({method.replace('_', '-')}, {relation.replace('_', '-')})"
    reading.claims.append(Claim(said, delta, under, source, computed=True))


def _member(value: Any) -> str | None:
    """The normalised name of an enumeration's member, written as a name or as its text."""
    text = value.last if isinstance(value, Name) else value
    return text.lower().replace("-", "_") if isinstance(text, str) else None


def flower_epsilon(
    noise: float, sampled: int, population: int, rounds: int, method: str, relation: str,
    delta: float,
) -> float:  # fmt: skip
    """The epsilon that Flower 1.42's accountant (RDP of dp-accounting) prints."""
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    event: Any = dp_accounting.GaussianDpEvent(noise)
    if method == "poisson":
        event = dp_accounting.PoissonSampledDpEvent(sampled / population, event)
    elif method == "without_replacement":
        event = dp_accounting.SampledWithoutReplacementDpEvent(population, sampled, event)
    kind = dp_accounting.NeighboringRelation
    under = kind.REPLACE_ONE if relation == "replace_one" else kind.ADD_OR_REMOVE_ONE
    accountant = RdpAccountant(neighboring_relation=under)
    return float(accountant.compose(event, rounds).get_epsilon(delta))


# --- Configurations and logs of Flower; ``frameworks.flower`` reads its scripts. -----------------

FRACTION = ("fraction_train", "fraction_fit")
LEAST = ("min_train_nodes", "min_fit_clients")
AVAILABLE = ("min_available_nodes", "min_available_clients")
PROTECTS = {
    "Server": "a client's whole update, from everyone who sees the models after the noise; the "
    "server sees each update unclipped and without noise",
    "Client": "a client's whole update, from everyone who sees the models after the noise; the "
    "server sees each clipped update unless secure aggregation hides it",
}


def read_config(source: Source, options: Options) -> Reading:
    """A project file or run configuration with the usual keys."""
    reading = Reading()
    noise = number(source.setting("noise_multiplier"))
    sampled = whole(source.setting("num_sampled_clients", "num_clients_per_round"))
    fraction = number(source.setting(*FRACTION, "fraction_sample"))
    named = source.setting("population_size", "num_supernodes", "num_clients", "population")
    population = options.population or whole(named)
    cohort = sampled
    if fraction is not None and population:
        least = whole(source.setting(*LEAST)) or 2
        cohort = min(max(int(population * fraction), least), population)
        if sampled is not None and cohort < sampled:
            noise = None if noise is None else noise * cohort / sampled
            text = f"num-sampled-clients is {sampled} but the fraction draws {cohort}: the noise "
            reading.alarm("cohort-mismatch", f"{text}is for {sampled}")
        elif sampled is not None and noise is not None:
            noise *= cohort / sampled
    enough = whole(source.setting(*AVAILABLE))
    if enough is not None and population and enough < population and fraction not in (None, 1.0):
        text = f"min-available is {enough} of {population} registered clients: the fraction is of "
        text += "the connected ones"
        reading.alarm("connected-ratio", text)
    evaluated = number(source.setting("fraction_evaluate"))
    if evaluated:
        text = f"fraction-evaluate is {evaluated:g}: clients send metrics of their data"
        reading.alarm("evaluation", f"{text} without noise")
    if "median" in str(source.setting("clipping_norm", "clipping", "clip")).lower():
        reading.alarm("unpaid-clipping", "the clipping norm is a median of the clients' norms, "
                      "which no accountant counts")  # fmt: skip
    weights = str(source.setting("weighted_by_key", "weighting", "weights")).lower()
    if "example" in weights or "sample" in weights:
        reading.alarm("private-weights", f"weights are {weights}: private counts of the clients")
    _config_modulus(source, reading, cohort)
    side = "Client" if "client" in str(source.setting("strategy")).lower() else "Server"
    if noise is not None or source.has("noise_multiplier"):
        reading.mechanism(
            "client", PROTECTS[side], "fixed_size", noise, cohort=cohort, population=population,
            rounds=whole(source.setting("num_server_rounds", "num_rounds", "rounds")),
        )  # fmt: skip
    claimed = number(source.setting("epsilon", "target_epsilon", "max_epsilon"))
    reading.delta = number(source.setting("delta", "target_delta"))
    if claimed is not None:
        reading.claims.append(Claim(claimed, reading.delta, None, "the configuration"))
    return reading


def _config_modulus(source: Source, reading: Reading, cohort: int | None) -> None:
    names = ("quantization_range", "modulus_range")
    target, modulus = (whole(source.setting(name)) for name in names)
    if cohort and target and modulus and cohort * target > modulus:
        text = f"{cohort} clients times quantization-range {target} exceed modulus-range {modulus}"
        reading.alarm("modulus", f"{text}: the sum wraps around")


def read_log(source: Source, options: Options) -> Reading:
    """What the server wrote: cohorts, clipping norm, noise and its own epsilon."""
    reading, text = Reading(), source.text
    drawn = re.findall(r"[Ss]ampled (\d+) (?:nodes|clients) \(out of (\d+)\)", text)
    received = [int(n) for n in re.findall(r"Received (\d+) results", text)]
    deviations = re.findall(r"central DP noise with ([\d.]+) stdev", text)
    clips = {float(c) for c in re.findall(r"clipped by value: ([\d.]+?)\.?\s", text + "\n")}
    spent = re.findall(r"epsilon=([\d.]+) at delta=([\d.e+-]+)(?: after (\d+) releases)?", text)
    if spent:
        epsilon, delta, count = spent[-1]
        reading.delta = float(delta)
        releases = int(count) if count else None
        claim = Claim(float(epsilon), reading.delta, Relation.ADD_REMOVE, "the log", releases)
        reading.claims.append(claim)
    if not deviations:
        return reading
    cohorts = [int(m) for m, _ in drawn] or received
    connected = {int(n) for _, n in drawn}
    population = options.population or (max(connected) if connected else None)
    if len(clips) > 1:
        reading.unknown("noise multiplier", "the clipping norm changes from round to round")
    low = high = None
    if len(clips) == 1 and received:
        clip = clips.pop()
        noises = [(float(d) - 5e-5, float(d) + 5e-5) for d in deviations]
        least, most = min(received), max(received)
        low = max(0.0, min(n[0] for n in noises) * least / clip)
        high = max(n[1] for n in noises) * most / clip
    if population and connected and min(connected) < population:
        drawn_from = f"{min(connected)} to {max(connected)} connected clients, not from"
        reading.alarm("connected-ratio", f"cohorts are drawn from {drawn_from} {population}")
    if received and cohorts and min(received) < min(cohorts):
        answered = f"{min(received)} clients answered of {min(cohorts)} drawn"
        why = f"{answered}: the mean of fewer clients got the noise for all"
        reading.alarm("cohort-mismatch", why)
    reading.mechanism(
        "client", PROTECTS["Server"], "fixed_size" if drawn else None,
        None if low is None or high is None else (low, high),
        cohort=max(cohorts) if cohorts else None,
        population=min(connected) if connected and not options.population else population,
        rounds=len(deviations),
    )  # fmt: skip
    return reading


# --- Flower: strategy wrappers with central noise, ``LocalDpMod``, secure aggregation, logs. -----
# Source: flwr 1.42, ``serverapp.strategy.dp_fixed_clipping``, ``dp_adaptive_clipping``,
# ``strategy_utils.sample_nodes`` (``random.sample`` of the connected nodes: a fixed-size cohort)
# and ``supercore.privacy_accounting``. The noise on the mean has standard deviation
# ``noise_multiplier * clipping_norm / num_sampled_clients``.

_WRAPPER = re.compile(r"^DifferentialPrivacy(Server|Client)Side(Fixed|Adaptive)Clipping$")
_NOT_A_MEAN = {"FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum", "Bulyan", "QFedAvg"}
_SERVER_STEP = {"FedAdam", "FedAdagrad", "FedYogi", "FedAvgM", "FedOpt"}


def read(source: Source, options: Options) -> Reading:
    """Read a script, a project configuration or a log of Flower."""
    if source.script is not None:
        return _read_script(source, source.script, options)
    return read_config(source, options) if source.kind == "config" else read_log(source, options)


def _read_script(source: Source, script: Script, options: Options) -> Reading:
    reading = Reading()
    checks.find(script, reading)
    rounds = options.rounds or _rounds(script, reading)
    wrappers = [call for call in script.calls if _WRAPPER.match(call.name)]
    for call in wrappers:
        _central(script, reading, call, rounds, options)
    for call in script.named("LocalDpMod"):
        _local(reading, call, rounds, bool(wrappers))
    if script.imports("opacus") and not wrappers:
        found = read_opacus(source, script, options)
        reading.mechanisms += found.mechanisms
        reading.claims += found.claims
        reading.alarms += [one for one in found.alarms if one not in reading.alarms]
        reading.undetermined += found.undetermined
        reading.delta = reading.delta or found.delta
    elif wrappers or script.named("LocalDpMod"):
        _evaluation(script, reading)
    checks.resumption(script, reading, script.named("RdpAccountant"))
    return reading


def _rounds(script: Script, reading: Reading) -> int | None:
    starts = [one for one in script.named("start") if one.given("grid", 0)]
    if not checks.starts_once(script, reading, starts):
        return None
    for call in script.calls:
        if call.name == "ServerConfig" or (call in starts and call.given("num_rounds", 2)):
            return whole(call.argument("num_rounds", 0 if call.name == "ServerConfig" else 2))
    return whole(script.settings.get("num_server_rounds"))


def _bypassed(script: Script, reading: Reading, inner: Any) -> None:
    """A strategy that is started although it was wrapped: without the wrapper, and its noise."""
    for call in script.calls:
        used = call.argument("strategy", None, None)
        if call.name == "start" and isinstance(call.node.func, ast.Attribute):
            used = script.value(call.node.func.value) if call.given("grid", 0) else None
        elif call.name not in _STARTS:
            continue
        if used is UNKNOWN:
            reading.unknown("strategy", f"line {call.line} starts one that is not determined")
        if isinstance(used, Call) and isinstance(inner, Call) and used.node is inner.node:
            text = f"{used.name} is started without the wrapper that adds noise"
            reading.alarm("no-noise", text, call.line)


_STARTS = {"ServerAppComponents", "ServerApp", "start_server", "start_simulation"}


def _central(
    script: Script, reading: Reading, call: Call, rounds: int | None, options: Options
) -> None:
    """A strategy wrapper: the executed cohort, and the noise over it."""
    match = _WRAPPER.match(call.name)
    side, kind = match.groups() if match else ("Server", "Fixed")
    noise = number(call.argument("noise_multiplier", 1))
    sampled = whole(call.argument("num_sampled_clients", 3 if kind == "Fixed" else 2))
    inner = call.argument("strategy", 0)
    accountant = call.argument("accountant", None, None)
    config = config_of(accountant)
    population = options.population
    if population is None and config is not None:
        population = whole(config.argument("population_size", 1))
    cohort = _cohort(script, reading, inner, population, sampled)
    if cohort is not None and sampled is not None and cohort != sampled and accountant is None:
        if noise is not None:
            noise = noise * cohort / sampled
        if cohort < sampled:
            text = f"num_sampled_clients is {sampled} but {cohort} clients are drawn: the mean "
            text += f"gets noise for {sampled}, so the noise multiplier executed is "
            text += "not determined" if noise is None else f"{noise:.6g}"
            reading.alarm("cohort-mismatch", text, call.line)
    elif cohort is None:
        cohort = sampled
        if inner is UNKNOWN or not isinstance(inner, Call):
            reading.unknown("inner strategy", "not in the file; its cohort is taken to be "
                            "num_sampled_clients")  # fmt: skip
    if side == "Client":
        _clipped_by_clients(script, reading, kind, call)
    _inner(script, reading, inner, accountant)
    _bypassed(script, reading, inner)
    _secure_aggregation(script, reading, side, cohort)
    reading.mechanism(
        "client", PROTECTS[side], _law(script, reading, inner), noise, cohort=cohort,
        population=population, rounds=rounds,
    )  # fmt: skip
    if config is not None:
        add_claim(reading, config, noise, sampled, rounds, call)


def _law(script: Script, reading: Reading, inner: Any) -> str | None:
    """Fixed-size cohorts, unless the script selects clients by code of its own."""
    own = {"configure_train", "configure_fit", "sample"}
    for one in script.classes():
        named = isinstance(inner, Call) and inner.name == one.name
        manager = any("ClientManager" in script.path(base) for base in one.bases)
        methods = {getattr(node, "name", "") for node in one.body}
        if named and methods & {"aggregate_train", "aggregate_fit"}:
            text = f"class {one.name} aggregates by its own code"
            reading.changes.append(("noise multiplier", one.lineno, text))
        if (named or manager) and methods & own:
            reading.unknown("sampling law", f"class {one.name} selects clients by its own code")
            return None
    return "fixed_size"


def _cohort(
    script: Script, reading: Reading, inner: Any, population: int | None, sampled: int | None
) -> int | None:
    """Clients that the inner strategy draws; None where it is not determined."""
    if not isinstance(inner, Call):
        return None
    fraction, least, available = (
        _argument(inner, names, default)
        for names, default in ((FRACTION, 1.0), (LEAST, 2), (AVAILABLE, 2))
    )
    given = [name for name in AVAILABLE if inner.given(name)]
    ratio, floor, enough = number(fraction), whole(least), whole(available)
    if given and population and enough is not None and enough < population and ratio != 1:
        strict = any(one.given("accountant") for one in script.calls if _WRAPPER.match(one.name))
        if not strict:
            text = f"{given[0]} is {enough} of {population} registered clients: the fraction is "
            text += "of the clients that are connected, so with fewer of them the cohort shrinks "
            text += "below num_sampled_clients and each is drawn with a larger ratio"
            reading.alarm("connected-ratio", text, inner.line)
    if ratio is None or floor is None or population is None:
        return None
    return min(max(int(population * ratio), floor), population)


def _argument(call: Call, names: tuple[str, ...], default: Any) -> Any:
    for name in names:
        if call.given(name):
            return call.argument(name)
    return default if call.complete else UNKNOWN


def _clipped_by_clients(script: Script, reading: Reading, kind: str, call: Call) -> None:
    apps = script.named("ClientApp")
    mod = "fixedclipping_mod" if kind == "Fixed" else "adaptiveclipping_mod"
    if not apps:
        reading.conditions.append(f"assumes that every client runs {mod}, which clips its update")
    elif mod not in script.text:
        text = f"{call.name} expects the clients to clip, but ClientApp has no {mod}: nothing "
        reading.alarm("no-clipping", f"{text}bounds an update", apps[0].line)


def _inner(script: Script, reading: Reading, inner: Any, accountant: Any) -> None:
    """The aggregation inside the wrapper: noise is calibrated for an unweighted mean."""
    if not isinstance(inner, Call):
        return
    names = {inner.name} | {
        script.path(base).rpartition(".")[2]
        for one in script.classes()
        if one.name == inner.name
        for base in one.bases
    }
    if names & _NOT_A_MEAN:
        text = f"{inner.name} is no mean: one client can move its result by more than C / cohort, "
        text += "for which the noise is calibrated"
        reading.alarm("aggregation", text, inner.line)
    if names & _SERVER_STEP:
        plain = inner.name == "FedAvgM" and not number(inner.argument("server_momentum", 12, 0.0))
        if not plain:
            text = f"{inner.name} takes its server step inside the wrapper, before the noise: its "
            text += "state holds updates without noise, and the step is not bounded by C / cohort"
            reading.alarm("server-step", text, inner.line)
    _weights(script, reading, inner, accountant)


def _weights(script: Script, reading: Reading, inner: Call, accountant: Any) -> None:
    """Weights by numbers of examples, which clients report and nobody bounds."""
    if isinstance(accountant, Call):
        return  # Flower refuses unequal weights where it accounts
    counts = _private_counts(script)
    explicit = "num" in str(inner.argument("weighted_by_key", 5, ""))
    if explicit or counts:
        text = "the mean is weighted by each client's number of examples: a client with many moves "
        text += "it by more than C / cohort, and the counts are private values themselves"
        reading.alarm("private-weights", text, counts or inner.line)
    else:
        reading.conditions.append("assumes that all clients report the same weight (num_examples)")


def _private_counts(script: Script) -> int:
    """Line on which a client reports the length of its data as its weight; 0 where none does."""
    for function in script.functions():
        if function.name not in ("fit", "train"):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
                parts = node.value.elts
                if len(parts) == 3 and _is_length(parts[1]):
                    return node.lineno
            if isinstance(node, ast.Dict):
                for name, value in zip(node.keys, node.values, strict=True):
                    named = isinstance(name, ast.Constant) and name.value == "num-examples"
                    if named and _is_length(value):
                        return node.lineno
    return 0


def _is_length(node: ast.AST) -> bool:
    return any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "len"
        for one in ast.walk(node)
    )


def _secure_aggregation(script: Script, reading: Reading, side: str, cohort: int | None) -> None:
    for call in script.named("SecAggPlusWorkflow", "SecAggWorkflow"):
        target = whole(call.argument("quantization_range", 5, 1 << 22))
        modulus = whole(call.argument("modulus_range", 6, 1 << 32))
        if side == "Server":
            text = "the server is to clip updates that secure aggregation hides from it"
            reading.alarm("no-clipping", text, call.line)
        if cohort and target and modulus and cohort * target > modulus:
            text = f"{cohort} clients times quantization_range {target} exceed modulus_range "
            text += f"{modulus}: the sum wraps around, and its error depends on the data"
            reading.alarm("modulus", text, call.line)


def _local(reading: Reading, call: Call, rounds: int | None, central: bool) -> None:
    """``LocalDpMod(clipping_norm, sensitivity, epsilon, delta)``: the Gaussian of each client."""
    names = ("clipping_norm", "sensitivity", "epsilon", "delta")
    found = [number(call.argument(name, at)) for at, name in enumerate(names)]
    clip, sensitivity, epsilon, delta = found
    noise = None
    if clip and sensitivity is not None and epsilon and delta and delta < 1:
        deviation = sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
        noise = (deviation / clip, deviation / clip)
    protects = "a client's whole update, from the server and everyone else"
    reading.mechanism("client", protects, "full", noise, rounds=rounds, local=True)
    if epsilon is not None:
        reading.claims.append(Claim(epsilon, delta, None, "LocalDpMod"))
    reading.delta = reading.delta or delta
    if central:
        text = "LocalDpMod and a central wrapper in one script: each accounts for its own noise "
        text += "only, and the wrapper's clipping then scales the local noise down"
        reading.alarm("local-noise", text, call.line)


def _evaluation(script: Script, reading: Reading) -> None:
    """Results of evaluation on clients' data, which are released without noise."""
    for call in script.calls:
        fraction = number(call.argument("fraction_evaluate", None, None))
        if not call.given("fraction_evaluate") or fraction is None:
            continue
        if fraction > 0:
            text = f"fraction_evaluate is {fraction:g}: clients send metrics of their data without "
            text += "noise, which no accountant counts"
            reading.alarm("evaluation", text, call.line)
        return
    text = "assumes that clients send no evaluation results (fraction_evaluate is 1 by default)"
    reading.conditions.append(text)


FRAMEWORKS.register("flower", read)
