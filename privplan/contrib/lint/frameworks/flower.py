"""Flower: strategy wrappers with central noise, and ``LocalDpMod``.

Source: flwr 1.42, ``serverapp.strategy.dp_fixed_clipping``, ``dp_adaptive_clipping``,
``strategy_utils.sample_nodes`` (``random.sample`` of the connected nodes: a fixed-size
cohort). The noise on the mean has standard deviation ``noise_multiplier * clipping_norm
/ num_sampled_clients``. ``FedAvg`` takes all nodes, and at least 2, unless told
otherwise.
"""

from __future__ import annotations

import re

from privplan.contrib.lint.frameworks import opacus
from privplan.contrib.lint.reading import FRAMEWORKS, Findings, Options
from privplan.contrib.lint.script import Script, number, whole
from privplan.contrib.lint.source import Source
from privplan.contrib.lint.syntax import Call
from privplan.contrib.lint.understood import Understood, reader

_STRATEGY = (
    "fraction_train fraction_evaluate min_train_nodes min_evaluate_nodes min_available_nodes "
    "weighted_by_key | fraction_fit min_fit_clients min_evaluate_clients min_available_clients "
    "evaluate_fn initial_parameters proximal_mu eta tau"
)
_FIXED = "strategy noise_multiplier clipping_norm num_sampled_clients | accountant"
_ADAPTIVE = (
    "strategy noise_multiplier num_sampled_clients initial_clipping_norm target_clipped_quantile "
    "clip_norm_lr clipped_count_stddev"
)
_NO_MEAN = ("FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum", "Bulyan", "QFedAvg")
_SERVER_STEP = ("FedAdam", "FedAdagrad", "FedYogi", "FedAvgM", "FedOpt")
_STRATEGIES = ("FedAvg", "FedProx", *_NO_MEAN, *_SERVER_STEP)
LIST = Understood(
    package="flwr",
    calls={
        **dict.fromkeys(_STRATEGIES, _STRATEGY),
        "DifferentialPrivacyServerSideFixedClipping": _FIXED,
        "DifferentialPrivacyClientSideFixedClipping": _FIXED,
        "DifferentialPrivacyServerSideAdaptiveClipping": _ADAPTIVE,
        "DifferentialPrivacyClientSideAdaptiveClipping": _ADAPTIVE,
        "LocalDpMod": "clipping_norm sensitivity epsilon delta",
        "RdpAccountant": "config",
        "PrivacyConfig": "target_delta population_size neighboring_relation sampling_method",
        "ServerConfig": "num_rounds | round_timeout",
        "ServerApp": "| server_fn config strategy",
        "ServerAppComponents": "| strategy config",
        "start_server": "| server_address config strategy",
        "start_simulation": "| client_fn num_clients config strategy client_resources",
        "start": "grid initial_arrays num_rounds",
    },
    names="Context Grid NO_AMPLIFICATION WITHOUT_REPLACEMENT POISSON ADD_OR_REMOVE_ONE REPLACE_ONE",
    attributes="main",
    keys="project name version tool flwr app config num_server_rounds num_sampled_clients "
    "fraction_fit fraction_train fraction_evaluate noise_multiplier clipping_norm delta "
    "local_epochs learning_rate batch_size",
)
_WRAPPER = re.compile(r"DifferentialPrivacy(Server|Client)Side(Fixed|Adaptive)Clipping")
_STARTS = (
    "start",
    "start_server",
    "start_simulation",
    "ServerAppComponents",
    "ServerApp",
)
# New and old names of the fraction and the least number of a cohort, and of those who
# are there.
_COHORT: tuple[tuple[str, str, float], ...] = (
    ("fraction_train", "fraction_fit", 1.0),
    ("min_train_nodes", "min_fit_clients", 2),
    ("min_available_nodes", "min_available_clients", 2),
)
_FEWER = (
    "the mean of a smaller cohort gets the noise that is made for num_sampled_clients"
)
_METRICS = (
    "clients send metrics of their data without noise, which no accountant counts"
)
_UNBOUNDED = "one client can move the result by more than the noise is made for"


def _read_script(
    source: Source, script: Script, options: Options, findings: Findings
) -> None:
    wrappers = [call for call in script.calls if _WRAPPER.fullmatch(call.name)]
    local = script.named("LocalDpMod")
    findings.shown = bool(wrappers or local)
    started: dict[Call, Call] = {}  # the start of each strategy that is started
    for start in script.named(*_STARTS):
        used = LIST.argument(script, start, "strategy")
        if start.name == "start":
            used = script.value(start.holder)
        started[getattr(used, "call", start)] = start
    mods = "clipping_mod" in source.text or not script.named("ClientApp")
    for call in wrappers:
        inner = getattr(LIST.argument(script, call, "strategy"), "call", call)
        _judge_inner(script, call, inner, mods, options, findings)
        noise = LIST.argument(script, call, "noise_multiplier")
        opacus.judge_noise(noise, call.line, findings)
        if inner in started:
            message = f"{inner.name} is started without the wrapper of line {call.line}"
            cost = "the releases have no noise"
            line = started[inner].line
            findings.alarm("no-noise", message, cost, line, certain=False)
    for call in local:
        norm, assumed = (number(LIST.argument(script, call, name)) for name in _LOCAL)
        if norm and assumed and assumed < 2 * norm:
            message = (
                f"sensitivity {assumed:g}, of updates that are clipped to {norm:g}"
            )
            cost = "two clipped updates differ by up to twice the norm: half the noise is missing"
            findings.alarm("sensitivity", message, cost, call.line)
    if not wrappers and script.named("PrivacyEngine"):
        opacus.read_script(source, script, options, findings)
    else:
        findings.unknown(
            "the fraction is of the clients that are connected, which no script shows"
        )


_LOCAL = ("clipping_norm", "sensitivity")


def _either(
    script: Script, call: Call, new: str, old: str, default: float
) -> float | None:
    """A number under its new name or its old one."""
    name = new if new in LIST.bound(call) else old
    return number(LIST.argument(script, call, name, default))


def _judge_inner(
    script: Script,
    call: Call,
    inner: Call,
    mods: bool,
    options: Options,
    findings: Findings,
) -> None:
    """Say what is wrong with the strategy in a wrapper, and with its cohort."""
    if inner.name not in _STRATEGIES:
        return
    sampled = whole(LIST.argument(script, call, "num_sampled_clients")) or 0
    fraction, floor, available = (_either(script, inner, *names) for names in _COHORT)
    expected = options.population or (sampled / fraction if fraction else 0)
    # how many are drawn is not known, but with the number of those who may be
    drawn: float = sampled
    if options.population:
        drawn = max(int(options.population * (fraction or 0)), floor or 0)
    evaluated = number(LIST.argument(script, inner, "fraction_evaluate", 1.0))
    less = available is not None and available < expected
    wrong: tuple[tuple[object, bool, str, str, str], ...] = (
        (less, False, "connected-ratio", f"{available} of {expected:g} clients start a round",
         _FEWER),
        (None not in (fraction, floor) and drawn < sampled, True, "cohort-mismatch",
         f"num_sampled_clients is {sampled}, and {drawn:g} are drawn", _FEWER),
        (inner.name in _NO_MEAN, True, "aggregation", f"{inner.name} is no mean", _UNBOUNDED),
        (inner.name in _SERVER_STEP, True, "server-step", "a step before the noise", _UNBOUNDED),
        (evaluated, False, "evaluation", f"fraction_evaluate is {evaluated} (default 1)",
         _METRICS),
        ("ClientSide" in call.name and not mods, False, "no-clipping", "no mod clips", _UNBOUNDED),
    )  # fmt: skip
    for is_so, certain, code, message, cost in wrong:
        if is_so:
            findings.alarm(code, message, cost, inner.line, certain=certain)


def _read_configuration(source: Source, options: Options, findings: Findings) -> None:
    findings.shown = "noise_multiplier" in source.settings


FRAMEWORKS.register("flower", reader(LIST, _read_script, _read_configuration))
