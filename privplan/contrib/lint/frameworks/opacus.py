"""Opacus: ``make_private`` and ``make_private_with_epsilon``, a mechanism for records.

Source: opacus 1.6, ``privacy_engine.py``: ``sample_rate = 1 / len(data_loader)``,
Poisson sampling unless ``poisson_sampling=False``. Noise is on the sum of clipped
gradients, so that ``noise_multiplier`` is that of the release.
"""

from __future__ import annotations

import math
import re
from typing import Any

from privplan.accounting.release import SamplingLaw
from privplan.contrib.lint import traps
from privplan.contrib.lint.executions import looped_over, several, times
from privplan.contrib.lint.reading import FRAMEWORKS, Findings, Mechanism, Options
from privplan.contrib.lint.script import Result, Script, made_by, number, whole
from privplan.contrib.lint.source import Source
from privplan.contrib.lint.syntax import Call
from privplan.contrib.lint.understood import Understood, reader

_SHARED_ARGUMENTS = (
    "| module optimizer data_loader max_grad_norm poisson_sampling clipping batch_first"
)
LIST = Understood(
    package="opacus",
    calls={
        "PrivacyEngine": "| accountant secure_mode",
        "make_private": f"{_SHARED_ARGUMENTS} noise_multiplier",
        "make_private_with_epsilon": f"{_SHARED_ARGUMENTS} target_epsilon target_delta epochs",
        "get_epsilon": "delta",
        "BatchMemoryManager": "| data_loader max_physical_batch_size optimizer",
        "fix": "module",
        "validate": "module | strict",
        "step": "",
        "backward": "",
    },
    names="ModuleValidator",
    keys="dp dp_sgd training train privacy opacus name framework "
    "noise_multiplier sigma max_grad_norm max_norm clipping clipping_mode batch_size epochs "
    "num_epochs delta target_delta epsilon target_epsilon poisson_sampling accountant secure_mode "
    "lr learning_rate momentum weight_decay seed dataset unit privacy_unit",
)
_PRIVATE = ("make_private", "make_private_with_epsilon")
_PROTECTED = "Opacus protects single records"
_SHUFFLED = (
    "the accountant still assumes Poisson sampling, and nothing is amplified: noise 1.1 in ten "
    "epochs of batches of 1% costs up to 15.8 instead of 1.5 (delta 1e-5)"
)
_GDP = "its central limit is no upper bound: noise for a target of 4 costs 4.75 where Opacus says 4"
_CONDITIONS = (
    "batches by Poisson sampling, Opacus' default",
    "the file runs once on these records, from a model that has not seen them",
    "nothing but the model leaves: no losses, no metrics, no models of other runs",
    "each person has one record, which no layer of the model mixes with others",
    "nobody who sees the model knows a seed of the noise",
)


def read_script(
    source: Source, script: Script, options: Options, findings: Findings
) -> None:
    """Read a script that uses a ``PrivacyEngine``."""
    calls = script.named(*_PRIVATE)
    engines = script.named("PrivacyEngine")
    if calls:
        findings.shown = True
        traps.client_promise(source, findings, _PROTECTED)
    for call in script.named("get_epsilon"):
        delta = number(LIST.argument(script, call, "delta"))
        traps.large_delta(options, delta, findings, call.line)
    for call in calls:
        _judge_call(script, call, options, findings)
        _judge_rounds(source, script, call, engines, findings)
    for engine in engines:
        if LIST.argument(script, engine, "accountant", "prv") == "gdp":
            findings.alarm("gdp", 'accountant="gdp"', _GDP, engine.line)
    once = all(times(script, call.node) == 1 for call in (*calls, *engines))
    if len(calls) == len(engines) == 1 and once:
        _release(script, calls[0], options, findings)
    else:
        findings.unknown(
            "PrivacyEngine and make_private are not called just once, and run once"
        )


def _judge_call(
    script: Script, call: Call, options: Options, findings: Findings
) -> None:
    """How the batches of a call are drawn, what its delta is, and whom it protects."""
    sampled = LIST.argument(script, call, "poisson_sampling", True)
    batch = whole(_batch(script, call))
    everyone = batch and batch >= (options.population or math.inf)
    if sampled is False and not everyone:
        message = "poisson_sampling=False: each record is in one batch of every epoch"
        findings.alarm("shuffled", message, _SHUFFLED, call.line)
    elif sampled is not True:
        findings.unknown("poisson_sampling is not True", call.line)
    if LIST.argument(script, call, "clipping", "flat") != "flat":
        findings.unknown("clipping that is not flat", call.line)
    delta = number(LIST.argument(script, call, "target_delta"))
    traps.large_delta(options, delta, findings, call.line)


def _batch(script: Script, private: Call) -> Any:
    """Records in a batch of the loader that a call is given."""
    loader = made_by(LIST.argument(script, private, "data_loader"), "DataLoader")
    return LIST.argument(script, loader, "batch_size", 1)


def _judge_rounds(
    source: Source, script: Script, call: Call, engines: list[Call], findings: Findings
) -> None:
    """Engines and calibrations of every round, for a model that goes on."""
    module = LIST.bound(call).get("module", call.node)
    if not traps.new_in_rounds(source, script, call, getattr(module, "id", "")):
        return
    cost = "its epsilon is of that round alone, and the costs of all rounds add up"
    if any(several(script, engine.node) for engine in engines):
        findings.alarm(
            "fresh-accountant", "each round makes a PrivacyEngine", cost, call.line
        )
    elif call.name == _PRIVATE[1]:
        message = "the noise is calibrated for the whole target in each round"
        findings.alarm("overrun", message, cost, call.line)


def _release(script: Script, call: Call, options: Options, findings: Findings) -> None:
    """The releases of the one mechanism, where the file determines all of them."""
    epochs = _epochs(script, call, findings)
    planned = number(LIST.argument(script, call, "epochs"))
    if planned and epochs and planned < epochs:
        message = f"the noise is calibrated for {planned:g} epochs, and {epochs:g} are trained"
        cost = "the epochs beyond cost more than the target"
        findings.alarm("overrun", message, cost, call.line)
    if call.name == _PRIVATE[1]:
        findings.unknown(
            "Opacus computes the noise multiplier when the file runs", call.line
        )
        return
    noise = LIST.argument(script, call, "noise_multiplier")
    noise = findings.literal("noise multiplier", noise, call.line)
    findings.literal(
        "clipping norm", LIST.argument(script, call, "max_grad_norm"), call.line
    )
    batch = findings.literal("batch size", _batch(script, call), call.line)
    questions = script.named("get_epsilon")
    delta = (
        LIST.argument(script, questions[0], "delta") if len(questions) == 1 else None
    )
    delta = findings.literal(
        "delta", delta, questions[0].line if questions else 0, options.delta
    )
    records = findings.literal("records", None, 0, options.population)
    batches = math.ceil(records / batch) if batch else 0
    steps = epochs and epochs * batches
    rounds = findings.literal(
        "steps, one for each batch in all epochs", steps, 0, options.rounds
    )
    for text in _CONDITIONS:
        findings.condition(text)
    if noise and batches and rounds and delta:
        findings.mechanism = Mechanism(
            "record", noise, SamplingLaw.POISSON, 1 / batches, int(rounds), delta
        )


def _epochs(script: Script, private: Call, findings: Findings) -> float | None:
    """How often the private optimiser steps through all batches; None where open."""
    steps = [call for call in script.named("step") if "sched" not in call.path]
    passes = script.named("backward")
    blocks = [[*script.blocks(call.node)] for call in (*steps, *passes)]
    if len(steps) != 1 or len(passes) != 1 or blocks[0] != blocks[1]:
        findings.unknown("not one optimiser step after one backward pass, in one place")
        return None
    holder = getattr(steps[0].node.func, "value", None)
    loop = blocks[0][0]
    loader = script.value(looped_over(script, loop))
    if [script.value(holder), loader] != [Result(private, 1), Result(private, 2)]:
        findings.unknown(
            "steps of another optimiser, over another loader", steps[0].line
        )
        return None
    epochs = number(times(script, loop))
    if epochs is None:
        findings.unknown("how often the loop of the training steps runs", steps[0].line)
        return None
    findings.condition(
        f"this loop over all batches runs {epochs:g} times", steps[0].line
    )
    return epochs


def _read_configuration(source: Source, options: Options, findings: Findings) -> None:
    """Read the arguments of ``make_private`` as a file."""
    findings.shown = bool(
        {"noise_multiplier", "sigma", "max_grad_norm"} & source.settings.keys()
    )
    delta = number(source.settings.get("delta"))
    traps.large_delta(options, delta or options.delta, findings, source.line("delta"))
    wrong = (
        ("poisson_sampling", "False", "shuffled", _SHUFFLED),
        ("accountant", "gdp", "gdp", _GDP),
        ("unit", "client|user|patient", "record-level", traps.UNIT_COST),
    )
    for key, values, code, cost in wrong:
        value = str(source.settings.get(key))
        if re.match(values, value):
            findings.alarm(code, f"{key} is {value}", cost, source.line(key))


FRAMEWORKS.register("opacus", reader(LIST, read_script, _read_configuration))
