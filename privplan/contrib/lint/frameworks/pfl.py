"""pfl-research: its configurations and scripts."""

from __future__ import annotations

import ast
import re

from privplan.accounting.release import Relation
from privplan.contrib.lint import reading as checks
from privplan.contrib.lint.reading import FRAMEWORKS, Claim, Options, Reading
from privplan.contrib.lint.script import UNKNOWN, Call, Script, Source, number, whole
from privplan.errors import PrivplanError

CENTRAL = "a user's whole update, from everyone who sees the models after the noise; the server "
CENTRAL += "sees the sum before the noise"
LOCAL = "a user's whole update, from the server and everyone else"
SAMPLERS = {"random": "with_replacement", "minimize_reuse": "round_robin"}


def no_sampling(reading: Reading, line: int = 0) -> None:
    """Add the alarm of users that are taken in turn."""
    text = "minimize_reuse takes the users in turn: nothing is drawn by chance, so that no "
    text += "sampling probability below 1 amplifies the guarantee"
    reading.alarm("not-sampled", text, line)


def calibrated(epsilon: float, delta: float, probability: float, rounds: int) -> float | None:
    """Noise multiplier that Poisson accounting gives for a budget, as pfl's accountants do."""
    from privplan.accounting.calibrate import calibrate

    try:
        return calibrate(
            "noise_multiplier", epsilon, delta, sampling_ratio=probability, rounds=rounds
        )
    except PrivplanError:
        return None


def read_config(source: Source, options: Options) -> Reading:
    """Arguments of pfl's benchmarks, as a file."""
    reading = Reading()
    get = source.setting
    epsilon = number(get("central_epsilon", "epsilon", "target_epsilon"))
    delta = number(get("central_delta", "delta", "target_delta"))
    population = options.population or whole(get("population", "population_size"))
    cohort = whole(get("cohort_size"))
    assumed = whole(get("noise_cohort_size")) or cohort
    named = get("central_num_iterations", "num_compositions", "num_rounds", "rounds")
    rounds = options.rounds or whole(named)
    scale = number(get("noise_scale"))
    if scale is None and cohort and assumed:
        scale = cohort / assumed
    probability = number(get("sampling_probability"))
    if probability is None and assumed and population:
        probability = assumed / population
    noise = number(get("noise_multiplier", "relative_noise_stddev", "noise_parameter"))
    if noise is None and epsilon and delta and probability and rounds:
        noise = calibrated(epsilon, delta, probability, rounds)
    if noise is not None and scale is not None and scale < 1:
        noise *= scale
        text = f"the noise is scaled by {scale:g} (noise_scale, or cohort_size over "
        text += "noise_cohort_size): epsilon is of a cohort that does not exist"
        reading.alarm("noise-scale", text)
    if cohort and probability and population and cohort / population > probability * (1 + 1e-6):
        reading.alarm("cohort-mismatch", f"sampling_probability is {probability:g}, the cohort "
                      f"{cohort} of {population}")  # fmt: skip
    sampler = str(get("user_sampler", "sample_type", "sampler", "sampling")).lower()
    law = SAMPLERS.get(sampler, {"poisson": "poisson", "fixed_size": "fixed_size"}.get(sampler))
    if sampler == "random":
        reading.alarm("with-replacement", "users are drawn with replacement (random)")
    accounted = epsilon is not None and (probability is None or probability < 1)
    if sampler == "minimize_reuse" and accounted and not (cohort and cohort == population):
        no_sampling(reading)
    weights = str(get("weighting", "weighting_strategy")).lower()
    if re.search(r"datapoints|num_samples|examples", weights):
        reading.alarm("private-weights", f"weighting is {weights!r}: private counts of users")
    local = source.has("local_epsilon") and not source.has("central_epsilon")
    if epsilon is not None:
        reading.claims.append(Claim(epsilon, delta, Relation.ADD_REMOVE, "the configuration"))
    reading.delta = delta
    if epsilon is not None or noise is not None:
        reading.mechanism(
            "client", LOCAL if local else CENTRAL, "full" if local else law, noise, cohort=cohort,
            population=population, rounds=rounds, local=local,
        )  # fmt: skip
    return reading


# --- pfl-research: privacy accountants, mechanisms, samplers of users, postprocessors. -----------
# Source: pfl 0.6, ``privacy/privacy_accountant.py`` (noise of the mechanism is
# ``noise_parameter * noise_scale``), ``privacy/gaussian_mechanism.py`` (noise on the sum),
# ``data/sampling.py`` (``random`` draws with replacement, ``minimize_reuse`` takes users in turn).

_ACCOUNTANTS = {"PLDPrivacyAccountant", "PRVPrivacyAccountant", "RDPPrivacyAccountant"}
_ACCOUNTED = ("from_privacy_accountant", "construct_from_privacy_accountant")


def read(source: Source, options: Options) -> Reading:
    """Read a script or a configuration of pfl; its logs are not read."""
    if source.script is not None:
        return _read_script(source.script, options)
    return read_config(source, options)


def _read_script(script: Script, options: Options) -> Reading:
    reading = Reading()
    checks.find(script, reading)
    law, ratio, size = _law(script, reading, options)
    cohort = _cohort(script, size)
    for call in script.named("GaussianMechanism", *_ACCOUNTED, "construct_single_iteration"):
        _mechanism(script, reading, call, law, cohort, ratio, options)
    _postprocessors(script, reading)
    for call in script.named("WeightByDatapoints"):
        text = "WeightByDatapoints weights updates by each user's number of datapoints, and the "
        text += "sum is divided by their total: private counts, released without noise"
        reading.alarm("private-weights", text, call.line)
    _restart(script, reading)
    return reading


def _law(
    script: Script, reading: Reading, options: Options
) -> tuple[str | None, float | None, int | None]:
    """The sampling law of the training data's users, its ratio and its cohort."""
    found = {str(call.argument("sample_type", 0)) for call in script.named("get_user_sampler")}
    found |= {"minimize_reuse" for _ in script.named("MinimizeReuseUserSampler")}
    for call in script.named("get_user_sampler"):
        if call.argument("sample_type", 0) == "random":
            text = 'get_user_sampler("random") draws with replacement: a user can be in a cohort '
            text += "several times, each time with a clipped update, and the accountant assumes at "
            text += "most one"
            reading.alarm("with-replacement", text, call.line)
        everyone = options.population is not None and _cohort(script) == options.population
        in_turn = call.argument("sample_type", 0) == "minimize_reuse"
        if in_turn and _amplified(script) and not everyone:
            no_sampling(reading, call.line)
    if len(found) == 1:
        name = found.pop()
        if name in SAMPLERS:
            return SAMPLERS[name], None, None
    for call in script.calls:
        if not re.search("user|client|cohort", ast.unparse(script.statement(call))):
            continue  # it draws something else
        if call.name in ("sample", "choice") and script.generator(call):
            replaced = call.argument("replace", 2, call.name == "choice")
            if call.name == "sample" or replaced is False:
                size = whole(call.argument("k" if call.name == "sample" else "size", 1))
                if _cohort(script, size) == size:
                    return "fixed_size", None, size
        if call.name in ("binomial", "bernoulli"):
            return "poisson", number(call.argument("p", 1)), None
    reading.unknown("sampling law", "no get_user_sampler with a constant type")
    return None, None, None


def _amplified(script: Script) -> bool:
    """Whether an accountant may assume sampling; not where every probability is at least 1."""
    made = [one for one in script.calls if one.name in _ACCOUNTANTS]
    assumed = [number(one.argument("sampling_probability", 1)) for one in made]
    return any(one is None or one < 1 for one in assumed)


def _cohort(script: Script, drawn: int | None = None) -> int | None:
    """The one cohort size of training, which the parameters of every algorithm of pfl give."""
    for name in ("train_cohort_size", "cohort_size"):
        given = [one for one in script.calls if one.given(name) and one.name != "add_noise"]
        values = {whole(one.argument(name)) for one in given}
        if values:
            return values.pop() if len(values) == 1 else None
    return drawn


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
    rounds = options.rounds or _iterations(script, reading)
    band = None if noise is None else (noise, noise)
    if accountant is not None:
        band, planned, probability = _accounted(reading, accountant)
        if not any(line.startswith("rounds") for line in reading.undetermined):
            rounds = rounds or planned
        _planned(reading, accountant, planned, rounds, probability, cohort, options)
        if not central and probability is not None and probability < 1:
            text = "the noise is accounted with sampling, as noise on a cohort's sum, but the "
            text += "mechanism is not wrapped in CentrallyAppliedPrivacyMechanism: each user adds "
            text += "it to its own update, where the server sees whose it is"
            reading.alarm("local-noise", text, call.line)
    reading.mechanism(
        "client", CENTRAL if central else LOCAL, law if central else "full", band, cohort=cohort,
        population=options.population, ratio=ratio, rounds=rounds, local=not central,
    )  # fmt: skip


def _is_central(script: Script, call: Call) -> bool:
    """Whether the mechanism is applied to the sum of a cohort."""
    wrappers = script.named("CentrallyAppliedPrivacyMechanism", "AdaptiveClippingGaussianMechanism")
    if any(call.node in (one.node.args + [k.value for k in one.node.keywords]) for one in wrappers):
        return True
    values = [*(one.argument("underlying_mechanism", 0) for one in wrappers)]
    return any(isinstance(one, Call) and one.node is call.node for one in values) or bool(
        wrappers and any(one is UNKNOWN for one in values)
    )


def _iterations(script: Script, reading: Reading) -> int | None:
    runs = [one for one in script.named("run") if one.given("backend", 1)]
    given = [one for one in script.calls if one.given("central_num_iterations")]
    if not given or not checks.starts_once(script, reading, runs):
        return None
    return whole(given[0].argument("central_num_iterations"))


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
        text = f"noise_scale is {scale:g}: the executed noise is {scale:g} times what the "
        text += "accountant assumes, so its epsilon is of a larger cohort that does not exist"
        reading.alarm("noise-scale", text, accountant.line)
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
        text = f"num_compositions is {planned}, and {rounds} iterations are trained"
        reading.alarm("overrun", text, accountant.line)
    if probability and cohort and options.population:
        executed = cohort / options.population
        if executed > probability * (1 + 1e-6):
            text = f"sampling_probability is {probability:g}, and the cohort of {cohort} is "
            text += f"{executed:g} of {options.population} users"
            reading.alarm("cohort-mismatch", text, accountant.line)


_KNOWN = ("WeightByUser", "WeightByDatapoints", "NormClipping", "NormClippingOnly")
"""Postprocessors after the mechanism that are read."""


def _postprocessors(script: Script, reading: Reading) -> None:
    """Postprocessors run in the order of the list: what follows the mechanism changes the sum."""
    noisy = ("PrivacyMechanism", "Mechanism", *_ACCOUNTED, "construct_single_iteration")
    for call in script.named("SimulatedBackend"):
        if call.argument("max_overshoot_fraction", 4, 0.0) != 0:
            text = "max_overshoot_fraction enlarges cohorts"
            reading.changes.append(("sampling law", call.line, text))
        chain = call.argument("postprocessors", 2, [])
        if not isinstance(chain, list):
            text = "postprocessors that are not listed"
            reading.changes.append(("noise multiplier", call.line, text))
            continue
        names = [one.name if isinstance(one, Call) else "" for one in chain]
        private = [at for at, name in enumerate(names) if name.endswith(noisy)]
        if reading.mechanisms and not private and all(names):
            text = "no postprocessor of the backend adds noise: the mechanism is made, and not used"
            reading.alarm("no-noise", text, call.line)
        own = [name for name in names[min(private, default=len(names)) + 1 :] if name not in _KNOWN]
        if private and (own or call.given("aggregator", 3)):
            text = f"{own[0] or 'a postprocessor'} follows the mechanism" if own else "aggregator"
            reading.changes.append(("noise multiplier", call.line, text))
        clips = [at for at, name in enumerate(names) if "NormClipping" in name]
        if private and clips and max(clips) > min(private):
            text = f"{names[max(clips)]} follows {names[min(private)]}: it clips after the "
            reading.alarm("noise-before-clipping", f"{text}mechanism", call.line)


def _restart(script: Script, reading: Reading) -> None:
    made = [one for one in script.calls if one.name in _ACCOUNTANTS]
    checks.resumption(script, reading, made)
    if any(checks.made_each_round(script, one) and script.loops(one.node) for one in made):
        text = "an accountant is made in every round: each covers its own round only"
        reading.alarm("fresh-accountant", text, made[0].line)


FRAMEWORKS.register("pfl", read)
