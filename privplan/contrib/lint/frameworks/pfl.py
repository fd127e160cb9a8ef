"""pfl-research: privacy accountants, mechanisms, samplers of users, postprocessors.

Source: pfl 0.6, ``privacy/privacy_accountant.py`` (noise of the mechanism is
``noise_parameter * noise_scale``), ``privacy/gaussian_mechanism.py`` (noise on the
sum), ``data/sampling.py`` (``random`` draws with replacement, ``minimize_reuse`` takes
users in turn).
"""

from __future__ import annotations

import ast

from privplan.contrib.lint.reading import FRAMEWORKS, Findings, Options
from privplan.contrib.lint.script import Script, number
from privplan.contrib.lint.source import Source
from privplan.contrib.lint.understood import Understood, reader

_ACCOUNTANT = (
    "num_compositions sampling_probability mechanism epsilon delta noise_parameter "
    "noise_scale"
)
LIST = Understood(
    package="pfl",
    calls={
        "PLDPrivacyAccountant": _ACCOUNTANT,
        "PRVPrivacyAccountant": _ACCOUNTANT,
        "RDPPrivacyAccountant": _ACCOUNTANT,
        "GaussianMechanism": "clipping_bound relative_noise_stddev",
        "from_privacy_accountant": "accountant clipping_bound",
        "construct_from_privacy_accountant": "accountant clipping_bound",
        "CentrallyAppliedPrivacyMechanism": "underlying_mechanism",
        "SimulatedBackend": "training_data val_data postprocessors",
        "get_user_sampler": "sample_type user_ids",
        "FederatedDataset": "make_dataset_fn user_sampler",
        "NNAlgorithmParams": "| central_num_iterations evaluation_frequency train_cohort_size "
        "val_cohort_size",
        "WeightByUser": "",
        "FederatedAveraging": "",
        "run": "algorithm_params backend model | callbacks",
    },
    keys="dataset cohort_size noise_cohort_size population central_num_iterations central_epsilon "
    "central_delta central_privacy_mechanism central_privacy_clipping_bound sampling",
)
_MECHANISMS = (
    "GaussianMechanism",
    "from_privacy_accountant",
    "construct_from_privacy_accountant",
)
_CENTRAL = "CentrallyAppliedPrivacyMechanism"
_SCALE = "the executed noise is less by this factor, and epsilon is of a cohort that does not exist"
_DRAWS = (
    "nothing is drawn as the accountant assumes, so that less or nothing is amplified"
)
_RANDOM = "a user can be drawn several times in a cohort, and each update counts"


def _read_script(
    source: Source, script: Script, options: Options, findings: Findings
) -> None:
    accountants = script.named("PLDPrivacyAccountant", "PRVPrivacyAccountant")
    accountants += script.named("RDPPrivacyAccountant")
    findings.shown = bool(accountants or script.named(*_MECHANISMS))
    findings.unknown("how users are drawn and how often is code of pfl's data sets")
    iterations = _everywhere(script, "central_num_iterations")
    everyone = options.population == _everywhere(script, "train_cohort_size")
    amplified = False
    for call in accountants:
        planned, probability, scale = (
            number(LIST.argument(script, call, name, 1.0)) for name in _READ
        )
        amplified = amplified or ((probability or 1) < 1 and not everyone)
        if scale is not None and scale < 1:
            findings.alarm(
                "noise-scale", f"noise_scale is {scale:g}", _SCALE, call.line
            )
        if planned and iterations > planned:
            message = f"num_compositions is {planned:g}, and {iterations:g} iterations are trained"
            cost = "those beyond cost more"
            findings.alarm("overrun", message, cost, call.line, certain=False)
    for call in script.named("get_user_sampler"):
        kind = LIST.argument(script, call, "sample_type")
        if kind == "random":
            message = "users are drawn at random"
            findings.alarm(
                "with-replacement", message, _RANDOM, call.line, certain=False
            )
        if kind == "minimize_reuse" and amplified:
            message = "users are taken in turn"
            findings.alarm("not-sampled", message, _DRAWS, call.line, certain=False)
    _judge_postprocessors(script, bool(accountants), findings)


_READ = ("num_compositions", "sampling_probability", "noise_scale")


def _everywhere(script: Script, name: str) -> float:
    """The one value of an argument in all calls that give it; 0 where there is none."""
    keywords = [node for node in script.nodes if isinstance(node, ast.keyword)]
    sizes = {number(script.value(node.value)) for node in keywords if node.arg == name}
    if len(sizes) == 1:
        return sizes.pop() or 0.0
    return 0.0


def _judge_postprocessors(script: Script, accounted: bool, findings: Findings) -> None:
    """Whether the backend adds the noise, and to the sum of a cohort."""
    for call in script.named("SimulatedBackend"):
        chain = LIST.argument(script, call, "postprocessors", [])
        steps = chain if isinstance(chain, list) else [chain]
        names = [getattr(getattr(step, "call", None), "name", "") for step in steps]
        noisy = {name for name in names if name in (_CENTRAL, *_MECHANISMS)}
        if all(names) and not noisy and findings.shown:
            cost = "the mechanism is made and not used: the releases have no noise"
            message = "no postprocessor adds noise"
            findings.alarm("no-noise", message, cost, call.line, certain=False)
        if accounted and noisy - {_CENTRAL}:
            cost = "each user adds noise that is accounted as that of a whole cohort"
            message = "the mechanism is not central"
            findings.alarm("local-noise", message, cost, call.line, certain=False)


def _read_configuration(source: Source, options: Options, findings: Findings) -> None:
    findings.shown = any(
        "privacy" in key or "epsilon" in key for key in source.settings
    )
    cohort, assumed = (
        number(source.settings.get(name)) for name in ("cohort_size", _ASSUMED)
    )
    if cohort and assumed and cohort < assumed:
        message = f"the noise is scaled by {cohort / assumed:g}"
        findings.alarm("noise-scale", message, _SCALE, source.line(_ASSUMED))


_ASSUMED = "noise_cohort_size"

FRAMEWORKS.register("pfl", reader(LIST, _read_script, _read_configuration))
