"""Opacus: ``make_private`` and ``make_private_with_epsilon``, a mechanism for records.

Source: opacus 1.6, ``privacy_engine.py``: ``sample_rate = 1 / len(data_loader)``,
Poisson sampling unless ``poisson_sampling=False``. Noise is on the sum of clipped
gradients, so that ``noise_multiplier`` is that of the release.
"""

from __future__ import annotations

import ast
import math
from typing import Any

from privplan.accounting.release import SamplingLaw
from privplan.contrib.lint import training
from privplan.contrib.lint.executions import looped_over, several, times
from privplan.contrib.lint.reading import FRAMEWORKS, Findings, Mechanism, Options
from privplan.contrib.lint.script import UNKNOWN, Result, Script, made_by, number, whole
from privplan.contrib.lint.source import Source
from privplan.contrib.lint.syntax import LOOPS, Call
from privplan.contrib.lint.understood import Understood, reader

_SHARED_ARGUMENTS = "| module optimizer data_loader max_grad_norm poisson_sampling"
LIST = Understood(
    package="opacus",
    calls={
        "PrivacyEngine": "| accountant secure_mode",
        "make_private": f"{_SHARED_ARGUMENTS} noise_multiplier",
        "make_private_with_epsilon": f"{_SHARED_ARGUMENTS} target_epsilon target_delta epochs",
        "get_epsilon": "delta",
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
_SHUFFLED = (
    "Opacus still accounts Poisson sampling, and nothing is amplified: noise 1.1 in ten "
    "epochs of batches of 1% costs up to 15.8 instead of 1.5 (delta 1e-5)"
)
_GDP = "its central limit is no upper bound: noise for a target of 4 costs 4.75 where Opacus says 4"
_SEVERAL = (
    "what several engines or calls say adds up for people who are in more than one"
)
# One release with this noise multiplier distinguishes two neighbouring data sets at its
# midpoint with an error of Phi(-1/(2 * 0.01)), below 1e-500.
_NO_PROTECTION = 0.01
_NO_NOISE = "no protection: the releases have no noise, or next to none"
_DELTA = "Gaussian noise has no delta of 0; 1/n allows that one of the n is published in full"
_CONDITIONS = (
    "the data set has these records: one of each person, once",
    "batches by Poisson sampling, Opacus' default",
    "an example's loss depends on that example and on the parameters alone: nothing in data set, "
    "model, loss or loop mixes, centres, weights or multiplies examples; batches are the first "
    "dimension",
    "nothing else that is computed from private data, in this run or another (statistics, class "
    "weights, losses, scores, activations, when to stop), steers training or leaves it",
    "each batch, an empty one too, makes one step with fresh noise: none is skipped, and nobody "
    "who sees the model knows a seed",
    "no parameter or buffer changes but in these steps",
    "the file runs once, from top to bottom, from a model that has not seen these records",
    "the libraries are the published ones, in single precision or better",
)


def read_script(
    source: Source, script: Script, options: Options, findings: Findings
) -> None:
    """Read a script that uses a ``PrivacyEngine``."""
    calls = script.named(*_PRIVATE)
    engines = script.named("PrivacyEngine")
    answers = _answers(script)
    findings.shown = findings.shown or bool(calls)
    deltas = [LIST.argument(script, call, "delta") for call in answers]
    _judge_deltas(options, deltas, findings, answers[0].line if answers else 0)
    # without them, the script may account what it does in another way
    stated = bool(answers or script.named(_PRIVATE[1]))
    for call in calls:
        _judge_call(script, call, stated, options, findings)
        _judge_bypass(script, call, findings)
        repeated = len(calls) > 1 or several(script, call.node)
        if repeated:
            message = f"{call.name} is not called just once"
            findings.alarm("several", message, _SEVERAL, call.line, certain=False)
    _judge_changed_noise(script, findings)
    _judge_order(script, answers, findings)
    for engine in engines:
        if LIST.argument(script, engine, "accountant", "prv") == "gdp":
            message = 'accountant="gdp"'
            findings.alarm("gdp", message, _GDP, engine.line, certain=stated)
    once = all(times(script, call.node) == 1 for call in (*calls, *engines))
    if len(calls) == len(engines) == 1 and once:
        _release(script, calls[0], options, findings)
    else:
        findings.unknown(
            "PrivacyEngine and make_private are not called just once, and run once"
        )


def _answers(script: Script) -> list[Call]:
    """Calls that ask an engine of the file for its epsilon."""
    return [
        call
        for call in script.named("get_epsilon")
        if made_by(script.value(call.holder), "PrivacyEngine")
    ]


def _judge_deltas(
    options: Options, deltas: list[Any], findings: Findings, line: int
) -> None:
    """Whether every delta that is asked for is one that protects nobody."""
    limit = 1 / (options.population or 1)
    numbers = [number(delta) for delta in deltas]
    wrong = [delta for delta in numbers if delta is not None and not 0 < delta < limit]
    if wrong and len(wrong) == len(deltas):
        message = f"delta {wrong[0]:g} is not between 0 and 1/n = {limit:.4g}"
        findings.alarm("delta", message, _DELTA, line)


def _judge_call(
    script: Script, call: Call, stated: bool, options: Options, findings: Findings
) -> None:
    """How the batches of a call are drawn, and what its noise and its delta are."""
    sampled = LIST.argument(script, call, "poisson_sampling", True)
    batch = whole(_batch(script, call)) or math.inf
    if sampled is False:
        message = "poisson_sampling=False: each record is in one batch of every epoch"
        # a batch of everybody is drawn as the accountant assumes
        certain = stated and batch < (options.population or 0)
        findings.alarm("shuffled", message, _SHUFFLED, call.line, certain=certain)
    if sampled is not True:
        findings.unknown("poisson_sampling is not True", call.line)
    judge_noise(LIST.argument(script, call, "noise_multiplier"), call.line, findings)
    delta = LIST.argument(script, call, "target_delta")
    _judge_deltas(options, [delta], findings, call.line)


def judge_noise(
    multiplier: Any, line: int, findings: Findings, *, certain: bool = True
) -> None:
    """Whether a noise multiplier that the file determines protects nobody."""
    noise = number(multiplier)
    if noise is not None and noise <= _NO_PROTECTION:
        message = f"noise_multiplier is {noise:g}"
        findings.alarm("no-noise", message, _NO_NOISE, line, certain=certain)


def _judge_changed_noise(script: Script, findings: Findings) -> None:
    """Whether the private optimiser is given another noise multiplier that is none."""
    # a branch may skip it, and a function need not be called
    plain = (*LOOPS, ast.Module)
    for node in script.nodes:
        match node:
            case ast.Assign(
                targets=[ast.Attribute(value=changed, attr="noise_multiplier")]
            ):
                optimizer = script.value(changed)
                private = made_by(optimizer, *_PRIVATE)
                if private is None or optimizer != Result(private, 1):
                    continue
                certain = all(isinstance(block, plain) for block in script.blocks(node))
                multiplier = script.value(node.value)
                judge_noise(multiplier, node.lineno, findings, certain=certain)


def _judge_bypass(script: Script, private: Call, findings: Findings) -> None:
    """Whether training steps with what a call was given, not with what it returned."""
    given_optimizer = LIST.argument(script, private, "optimizer")
    given_loader = LIST.argument(script, private, "data_loader")
    for step in script.named("step"):
        if step.line < private.line:
            continue
        stepped = script.value(step.holder)
        if isinstance(stepped, Result) and stepped == given_optimizer:
            message = "the optimiser from before make_private steps"
            findings.alarm("bypass", message, _NO_NOISE, step.line, certain=False)
        for loop in script.loops(step.node):
            drawn = script.value(looped_over(script, loop))
            if isinstance(drawn, Result) and drawn == given_loader:
                message = "training goes over the loader from before make_private"
                findings.alarm("bypass", message, _SHUFFLED, step.line, certain=False)


def _judge_order(script: Script, answers: list[Call], findings: Findings) -> None:
    """Whether epsilon is asked for only before the first step of a plain script."""
    calls = [*answers, *script.named("step")]
    at_top = all(script.scope[call.node] is script.tree for call in calls)
    early = not any(script.loops(answer.node) for answer in answers)
    if not answers or len(calls) == len(answers) or not (at_top and early):
        return
    last = max(answer.line for answer in answers)
    if last < min(step.line for step in script.named("step")):
        message = "get_epsilon is called before the first step, and not after the last"
        cost = "what it says leaves out the training"
        findings.alarm("premature-epsilon", message, cost, last, certain=False)


def _batch(script: Script, private: Call) -> Any:
    """Records in a batch of the loader that a call is given."""
    loader = made_by(LIST.argument(script, private, "data_loader"), "DataLoader")
    listed = {*LIST.signature("DataLoader").split()}
    drawn = LIST.bound(loader).keys() <= listed
    if drawn:
        return LIST.argument(script, loader, "batch_size", 1)
    return UNKNOWN


def _release(script: Script, call: Call, options: Options, findings: Findings) -> None:
    """The releases of the one mechanism, where the file determines all of them."""
    epochs = training.epochs(script, call, options, findings)
    planned = number(LIST.argument(script, call, "epochs"))
    if planned and epochs and planned < epochs:
        message = f"the noise is calibrated for {planned:g} epochs, and {epochs:g} are trained"
        cost = "the epochs beyond cost more than the target"
        # what is not understood may end the training
        certain = not findings.not_understood
        findings.alarm("overrun", message, cost, call.line, certain=certain)
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
    answers = _answers(script)
    delta = LIST.argument(script, answers[0], "delta") if len(answers) == 1 else None
    delta = findings.literal(
        "delta", delta, answers[0].line if answers else 0, options.delta
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


def _read_configuration(source: Source, options: Options, findings: Findings) -> None:
    """Read the arguments of ``make_private`` as a file."""
    findings.shown = bool(
        {"noise_multiplier", "sigma", "max_grad_norm"} & source.settings.keys()
    )
    name = "target_delta"
    deltas = [source.settings.get(name, UNKNOWN)]
    _judge_deltas(options, deltas, findings, source.line(name))
    wrong = (
        ("poisson_sampling", "false", "shuffled", _SHUFFLED),
        ("accountant", "gdp", "gdp", _GDP),
    )
    for key, trap, code, cost in wrong:
        value = source.settings.get(key)
        if str(value).lower() == trap:
            message = f"{key} is {value}"
            findings.alarm(code, message, cost, source.line(key), certain=False)


FRAMEWORKS.register("opacus", reader(LIST, read_script, _read_configuration))
