"""pfl-research: privacy accountants, mechanisms, samplers of users, postprocessors.

Source: pfl 0.6, ``privacy/privacy_accountant.py`` (noise of the mechanism is
``noise_parameter * noise_scale``), ``privacy/gaussian_mechanism.py`` (noise on the sum),
``data/sampling.py`` (``random`` draws with replacement, ``minimize_reuse`` takes users in turn).
"""

from __future__ import annotations

from privplan.accounting.release import Relation
from privplan.lint import traps
from privplan.lint.expressions import UNKNOWN, Call, number, whole
from privplan.lint.pfl_files import (
    CENTRAL,
    LOCAL,
    SAMPLERS,
    calibrated,
    no_sampling,
    read_config,
    read_log,
)
from privplan.lint.reading import FRAMEWORKS, Claim, Mechanism, Options, Reading
from privplan.lint.script import Script
from privplan.lint.source import Source

_ACCOUNTANTS = {"PLDPrivacyAccountant", "PRVPrivacyAccountant", "RDPPrivacyAccountant"}
_ACCOUNTED = ("from_privacy_accountant", "construct_from_privacy_accountant")


def read(source: Source, options: Options) -> Reading:
    """Read a script, a configuration or a log of pfl."""
    if source.script is not None:
        return _read_script(source.script, options)
    return read_config(source, options) if source.kind == "config" else read_log(source, options)


def _read_script(script: Script, options: Options) -> Reading:
    reading = Reading()
    traps.find(script, reading)
    law, ratio, size = _law(script, reading)
    cohort = _cohort(script) or size
    for call in script.named("GaussianMechanism", *_ACCOUNTED, "construct_single_iteration"):
        _mechanism(script, reading, call, law, cohort, ratio, options)
    _postprocessors(script, reading)
    for call in script.named("WeightByDatapoints"):
        reading.alarm(
            "private-weights",
            "WeightByDatapoints weights updates by each user's number of datapoints, and the sum "
            "is divided by their total: private counts, released without noise",
            call.line,
        )
    _restart(script, reading)
    return reading


def _law(script: Script, reading: Reading) -> tuple[str | None, float | None, int | None]:
    """The sampling law of the training data's users, its ratio and its cohort."""
    found = {str(call.argument("sample_type", 0)) for call in script.named("get_user_sampler")}
    found |= {"minimize_reuse" for _ in script.named("MinimizeReuseUserSampler")}
    for call in script.named("get_user_sampler"):
        if call.argument("sample_type", 0) == "random":
            reading.alarm(
                "with-replacement",
                'get_user_sampler("random") draws with replacement: a user can be in a cohort '
                "several times, each time with a clipped update, and the accountant assumes at "
                "most one",
                call.line,
            )
        if call.argument("sample_type", 0) == "minimize_reuse" and _amplified(script):
            no_sampling(reading, call.line)
    if len(found) == 1:
        name = found.pop()
        if name in SAMPLERS:
            return SAMPLERS[name], None, None
    for call in script.calls:
        if call.name in ("sample", "choice") and call.path.startswith(("random.", "numpy.random")):
            replaced = call.argument("replace", 2, call.name == "choice")
            if call.name == "sample" or replaced is False:
                size = call.argument("k" if call.name == "sample" else "size", 1)
                return "fixed_size", None, whole(size)
        if call.name in ("binomial", "bernoulli"):
            return "poisson", number(call.argument("p", 1)), None
    reading.unknown("sampling law", "no get_user_sampler with a constant type")
    return None, None, None


def _amplified(script: Script) -> bool:
    """Whether an accountant may assume sampling; not where every probability is at least 1."""
    made = [one for one in script.calls if one.name in _ACCOUNTANTS]
    assumed = [number(one.argument("sampling_probability", 1)) for one in made]
    return not assumed or any(one is None or one < 1 for one in assumed)


def _cohort(script: Script) -> int | None:
    """The one cohort size of training, which the parameters of every algorithm of pfl give."""
    for name in ("train_cohort_size", "cohort_size"):
        given = [one for one in script.calls if one.given(name) and one.name != "add_noise"]
        values = {whole(one.argument(name)) for one in given}
        if values:
            return values.pop() if len(values) == 1 else None
    return None


def _mechanism(
    script: Script,
    reading: Reading,
    call: Call,
    law: str | None,
    cohort: int | None,
    ratio: float | None,
    options: Options,
) -> None:
    if call.name == "GaussianMechanism":
        noise = number(call.argument("relative_noise_stddev", 1))
        _add(script, reading, call, None, noise, law, cohort, ratio, options)
        return
    if call.name == "construct_single_iteration":
        epsilon, delta = number(call.argument("epsilon", 1)), number(call.argument("delta", 2))
        noise = single_noise(epsilon, delta)
        if epsilon is not None:
            reading.claims.append(Claim(epsilon, delta, None, "construct_single_iteration"))
        reading.delta = reading.delta or delta
        _add(script, reading, call, None, noise, law, cohort, ratio, options)
        return
    accountant = call.argument("accountant", 0)
    if not isinstance(accountant, Call) or accountant.name not in _ACCOUNTANTS:
        reading.unknown("privacy accountant", f"line {call.line}: not made in this file")
        accountant = None
    _add(script, reading, call, accountant, None, law, cohort, ratio, options)


def single_noise(epsilon: float | None, delta: float | None) -> float | None:
    """Noise multiplier of the analytic Gaussian mechanism for one release."""
    from privplan.accounting.gdp import mu_of

    if not epsilon or not delta or not 0 < delta < 1:
        return None
    return 1 / mu_of(epsilon, delta)


def _add(
    script: Script,
    reading: Reading,
    call: Call,
    accountant: Call | None,
    noise: float | None,
    law: str | None,
    cohort: int | None,
    ratio: float | None,
    options: Options,
) -> None:
    """Add the mechanism of a call, with the claim of its accountant."""
    central = _is_central(script, call)
    rounds = options.rounds or _iterations(script)
    band = None if noise is None else (noise, noise)
    if accountant is not None:
        band, planned, probability = _accounted(reading, accountant)
        rounds = rounds or planned
        _planned(reading, accountant, planned, rounds, probability, cohort, options)
        if not central and probability is not None and probability < 1:
            reading.alarm(
                "local-noise",
                "the noise is accounted with sampling, as noise on a cohort's sum, but the "
                "mechanism is not wrapped in CentrallyAppliedPrivacyMechanism: each user adds it "
                "to its own update, where the server sees whose it is",
                call.line,
            )
    reading.mechanisms.append(
        Mechanism(
            group="all",
            unit="client",
            protects=CENTRAL if central else LOCAL,
            law=law if central else "full",
            noise=band,
            cohort=cohort,
            population=options.population,
            ratio=ratio,
            rounds=rounds,
            local=not central,
        )
    )


def _is_central(script: Script, call: Call) -> bool:
    """Whether the mechanism is applied to the sum of a cohort."""
    wrappers = script.named("CentrallyAppliedPrivacyMechanism", "AdaptiveClippingGaussianMechanism")
    if any(call.node in (one.node.args + [k.value for k in one.node.keywords]) for one in wrappers):
        return True
    values = [*(one.argument("underlying_mechanism", 0) for one in wrappers)]
    return any(isinstance(one, Call) and one.node is call.node for one in values) or bool(
        wrappers and any(one is UNKNOWN for one in values)
    )


def _iterations(script: Script) -> int | None:
    for call in script.calls:
        if call.given("central_num_iterations"):
            return whole(call.argument("central_num_iterations"))
    return None


def _accounted(
    reading: Reading, accountant: Call
) -> tuple[tuple[float, float] | None, int | None, float | None]:
    """Executed noise, number of releases and sampling probability of an accountant."""
    fields = ("num_compositions", "sampling_probability", "mechanism", "epsilon", "delta")
    planned = whole(accountant.argument(fields[0], 0))
    probability = number(accountant.argument(fields[1], 1))
    epsilon = number(accountant.argument("epsilon", 3, None))
    delta = number(accountant.argument("delta", 4, None))
    noise = number(accountant.argument("noise_parameter", 5, None))
    scale = number(accountant.argument("noise_scale", 6, 1.0))
    reading.delta = reading.delta or delta
    if epsilon is not None:
        reading.claims.append(
            Claim(epsilon, delta, Relation.ADD_REMOVE, f"{accountant.name}", planned)
        )
    if scale is not None and scale < 1:
        reading.alarm(
            "noise-scale",
            f"noise_scale is {scale:g}: the executed noise is {scale:g} times what the accountant "
            "assumes, so its epsilon is of a larger cohort that does not exist",
            accountant.line,
        )
    if noise is None and None not in (planned, probability, epsilon, delta):
        noise = calibrated(epsilon or 1, delta or 0.5, probability or 1, planned or 1)
    band = None if noise is None or scale is None else (noise * scale * 0.999, noise * scale)
    return band, planned, probability


def _planned(
    reading: Reading,
    accountant: Call,
    planned: int | None,
    rounds: int | None,
    probability: float | None,
    cohort: int | None,
    options: Options,
) -> None:
    if planned and rounds and rounds > planned:
        reading.alarm(
            "overrun",
            f"num_compositions is {planned}, and {rounds} iterations are trained",
            accountant.line,
        )
    if probability and cohort and options.population:
        executed = cohort / options.population
        if executed > probability * (1 + 1e-6):
            reading.alarm(
                "cohort-mismatch",
                f"sampling_probability is {probability:g}, and the cohort of {cohort} is "
                f"{executed:g} of {options.population} users",
                accountant.line,
            )


def _postprocessors(script: Script, reading: Reading) -> None:
    """Postprocessors run in the order of the list: what follows the mechanism changes the sum."""
    for call in script.calls:
        chain = call.argument("postprocessors", None, None)
        if not isinstance(chain, list):
            continue
        names = [one.name if isinstance(one, Call) else "" for one in chain]
        noisy = ("PrivacyMechanism", "GaussianMechanism", *_ACCOUNTED)
        private = [at for at, name in enumerate(names) if name.endswith(noisy)]
        clips = [at for at, name in enumerate(names) if "NormClipping" in name]
        if private and clips and max(clips) > min(private):
            reading.alarm(
                "noise-before-clipping",
                f"{names[max(clips)]} follows {names[min(private)]}: it clips after the mechanism",
                call.line,
            )


def _restart(script: Script, reading: Reading) -> None:
    made = [one for one in script.calls if one.name in _ACCOUNTANTS]
    if any(traps.made_each_round(script, one) and script.loops(one.node) for one in made):
        reading.alarm(
            "fresh-accountant",
            "an accountant is made in every round: each covers its own round only",
            made[0].line,
        )


FRAMEWORKS.register("pfl", read)
