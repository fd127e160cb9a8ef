"""TensorFlow Federated: aggregators with differential privacy and the sampling of clients.

Source: tff ``aggregators/differential_privacy.py``: noise of standard deviation
``noise_multiplier * clip`` on the sum, divided by the constant ``clients_per_round``.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from privplan.accounting.release import Relation
from privplan.contrib.lint import reading as traps
from privplan.contrib.lint.reading import FRAMEWORKS, Claim, Mechanism, Options, Reading
from privplan.contrib.lint.script import Call, Script, Source, number, repetitions, whole

_FACTORIES = ("gaussian_fixed", "gaussian_adaptive", "dp_aggregator", "ddp_secure_aggregator",
              "GaussianSumQuery", "GaussianAverageQuery", "tree_aggregation")  # fmt: skip
_PROTECTS = "a client's whole update, from everyone who sees the models after the noise; the "
_PROTECTS += "server sees each update"
_UNIFORM = ("build_uniform_sampling_fn", "build_uniform_client_sampling_fn")


def read(source: Source, options: Options) -> Reading:
    """Read a training script or a configuration."""
    if source.script is not None:
        return _read_script(source.script, options)
    if source.kind == "config":
        return _read_config(source, options)
    reading = Reading()
    for epsilon in re.findall(r"epsilon\s*[=:]\s*(\d+(?:\.\d+)?)", source.text)[-1:]:
        reading.claims.append(Claim(float(epsilon), None, None, "the log"))
    return reading


def _read_script(script: Script, options: Options) -> Reading:
    reading = Reading()
    traps.find(script, reading)
    law, drawn = _sampling(script, reading, options)
    claims = _claims(script, reading)
    for call in script.named(*_FACTORIES):
        _factory(script, reading, call, law, drawn, options, claims)
    for call in script.calls:
        weighting = f"{call.argument('client_weighting', None, '')}"
        if "NUM_EXAMPLES" in weighting or call.name == "build_weighted_fed_avg":
            reading.alarm(
                "private-weights",
                "updates are weighted by each client's number of examples, which are private "
                "values and change how far one client moves the mean",
                call.line,
            )
        if call.name in ("build_fed_eval", "build_federated_evaluation"):
            reading.alarm(
                "evaluation",
                f"{call.name} collects metrics of clients' data without noise",
                call.line,
            )
    return reading


def _sampling(
    script: Script, reading: Reading, options: Options
) -> tuple[str | None, tuple[int | None, float | None]]:
    """The law by which the script draws clients, with cohort and ratio."""
    for call in script.calls:
        if call.name in _UNIFORM:
            replaced = call.argument("replace", 1, True)
            size = whole(call.argument("size", None, None))
            return _drawn(reading, call, replaced), (size or _size_of_samplers(script), None)
        numpy = call.path.startswith("numpy.random") or "rng" in call.path
        if call.name == "choice" and numpy and call.given("size", 1):
            replaced = call.argument("replace", 2, True)
            return _drawn(reading, call, replaced), (whole(call.argument("size", 1)), None)
        if call.name == "choices" and call.path.startswith("random."):
            return _drawn(reading, call, True), (whole(call.argument("k", 2)), None)
        if call.path == "random.sample":
            return "fixed_size", (whole(call.argument("k", 1)), None)
        records = call.positional and number(call.positional[0]) is not None  # of a tf.data.Dataset
        if call.name == "shuffle" and not call.positional[1:] and not records:
            reading.alarm("shuffled", "clients are shuffled and taken in turn, not sampled",
                          call.line)  # fmt: skip
            return "shuffle", (None, None)
        if call.name in ("binomial", "bernoulli"):
            return "poisson", (None, number(call.argument("p", 1)))
    for node in ast.walk(script.tree):
        found = _coin(script, node)
        if found is not None:
            return "poisson", (None, found)
    reading.unknown("sampling law", "no draw of clients in the file")
    return None, (None, None)


def _coin(script: Script, node: ast.AST) -> float | None:
    """The right side of ``uniform < q`` inside a filter of clients; -1 where it has no value."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return None
    if not isinstance(node.ops[0], ast.Lt | ast.LtE):
        return None
    names = {script.path(one.func).rpartition(".")[2] for one in ast.walk(node.left)
             if isinstance(one, ast.Call)}  # fmt: skip
    if not names & {"uniform", "random", "rand"}:
        base = next((one for one in ast.walk(node.left) if isinstance(one, ast.Name)), None)
        drawn = None if base is None else script.value(base)
        if not isinstance(drawn, Call) or drawn.name not in ("uniform", "random", "rand"):
            return None
    return number(script.value(node.comparators[0])) or -1.0


def _drawn(reading: Reading, call: Call, replaced: Any) -> str | None:
    if replaced is True:
        reading.alarm(
            "with-replacement",
            f"{call.name} draws with replacement: a client can be in a cohort several times",
            call.line,
        )
        return "with_replacement"
    if replaced is False:
        return "fixed_size"
    reading.unknown("sampling law", f"replace of {call.name} is not a constant")
    return None


def _size_of_samplers(script: Script) -> int | None:
    """Size with which a sampling function is called: ``sample_fn(round, size)``."""
    sizes = {whole(call.argument("size", 1)) for call in script.calls
             if re.search(r"sampl\w*_fn$|^sample_clients$", call.name)
             and call.given("size", 1)}  # fmt: skip
    return sizes.pop() if len(sizes) == 1 else None


def _claims(script: Script, reading: Reading) -> list[float]:
    """Sampling probabilities of Poisson events that the script accounts with."""
    found = []
    for call in script.named("PoissonSampledDpEvent", "compute_rdp"):
        value = number(call.argument("sampling_probability", 0, None))
        found += [] if value is None else [value]
    deltas = {
        number(call.argument("target_delta", 0, None))
        for call in script.named("get_epsilon", "get_epsilon_and_optimal_order")
    } - {None}
    if len(deltas) == 1:
        reading.delta = deltas.pop()
    return found


def _factory(
    script: Script,
    reading: Reading,
    call: Call,
    law: str | None,
    drawn: tuple[int | None, float | None],
    options: Options,
    claims: list[float],
) -> None:
    noise = number(call.argument("noise_multiplier", 0))
    expected = number(call.argument("clients_per_round", 1))
    if call.name in ("GaussianSumQuery", "GaussianAverageQuery"):
        clip, deviation = (number(call.argument(name, at)) for at, name in
                           enumerate(("l2_norm_clip", "stddev")))  # fmt: skip
        noise = deviation / clip if clip and deviation is not None else None
    cohort, ratio = drawn
    if ratio == -1.0:
        ratio = None
    size: float | None = cohort
    if size is None and law != "poisson":
        size = expected
    if size is None and ratio is None:
        size = expected
    rounds = options.rounds or _rounds(script)
    if call.name == "tree_aggregation":
        reading.unknown("noise multiplier", "tree aggregation is not accounted by lint")
        noise = None
    if call.name == "dp_aggregator" and call.argument("zeroing", 2, True) is not False:
        reading.conditions.append(
            "adaptive zeroing (on by default) estimates a quantile without noise: not covered"
        )
    reading.mechanisms.append(
        Mechanism(
            group="all",
            unit="client",
            protects=_PROTECTS,
            law=law,
            noise=None if noise is None else (noise, noise),
            cohort=size if ratio is None or options.population is None else None,
            population=options.population,
            ratio=ratio,
            rounds=rounds,
        )
    )
    if claims and noise and rounds and (options.delta or reading.delta):
        delta = options.delta or reading.delta or 0.5
        said = poisson_epsilon(noise, claims[0], rounds, delta)
        reading.claims.append(
            Claim(said, delta, Relation.ADD_REMOVE, "the script's accountant (Poisson)", None, True)
        )


def poisson_epsilon(noise: float, ratio: float, rounds: int, delta: float) -> float:
    """The epsilon of dp-accounting's RDP accountant for Poisson sampling."""
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    event = dp_accounting.PoissonSampledDpEvent(ratio, dp_accounting.GaussianDpEvent(noise))
    return float(RdpAccountant().compose(event, rounds).get_epsilon(delta))


def _rounds(script: Script) -> int | None:
    """Rounds: the loop around ``process.next(state, data)``."""
    for call in script.calls:
        if call.name == "next" and call.path.count("."):
            counts = [repetitions(script, loop) for loop in script.loops(call.node)]
            if counts:
                return counts[0] if len(counts) == 1 else None
            name = getattr(call.scope, "name", "")
            for outer in script.named(name):
                around = [repetitions(script, loop) for loop in script.loops(outer.node)]
                if len(around) == 1:
                    return around[0]
    for call in script.calls:
        if call.given("total_rounds") or call.given("num_rounds"):
            return whole(call.argument("total_rounds", None, call.argument("num_rounds")))
    return None


def _read_config(source: Source, options: Options) -> Reading:
    reading = Reading()
    get = source.setting
    noise = number(get("noise_multiplier"))
    sampling = str(get("sampling", "client_sampling", "sampler")).lower()
    law = {"poisson": "poisson", "uniform": "fixed_size", "fixed_size": "fixed_size",
           "without_replacement": "fixed_size", "shuffle": "shuffle"}.get(sampling)  # fmt: skip
    if get("replace") is True or sampling == "with_replacement":
        law = "with_replacement"
        reading.alarm("with-replacement", "clients are drawn with replacement")
    if law == "shuffle":
        reading.alarm("shuffled", "clients are shuffled and taken in turn, not sampled")
    weighting = str(get("client_weighting", "weighting")).lower()
    if "example" in weighting:
        reading.alarm("private-weights", f"client weighting is {weighting}: private counts")
    reading.delta = number(get("delta", "target_delta"))
    claimed = number(get("epsilon", "target_epsilon"))
    if claimed is not None:
        reading.claims.append(Claim(claimed, reading.delta, None, "the configuration"))
    if noise is not None:
        reading.mechanisms.append(
            Mechanism(
                group="all",
                unit="client",
                protects=_PROTECTS,
                law=law,
                noise=(noise, noise),
                cohort=number(get("clients_per_round", "cohort_size")),
                population=options.population
                or whole(get("population", "total_clients", "num_clients")),
                rounds=options.rounds or whole(get("total_rounds", "num_rounds", "rounds")),
            )
        )
    return reading


FRAMEWORKS.register("tff", read)
