"""Configurations and logs of pfl-research; ``frameworks.pfl`` reads its scripts."""

from __future__ import annotations

import re
from typing import Any

from privplan.accounting.release import Relation
from privplan.errors import PrivplanError
from privplan.lint.expressions import number, whole
from privplan.lint.reading import Claim, Mechanism, Options, Reading
from privplan.lint.source import Source

CENTRAL = "a user's whole update, from everyone who sees the models after the noise; the server "
CENTRAL += "sees the sum before the noise"
LOCAL = "a user's whole update, from the server and everyone else"
SAMPLERS = {"random": "with_replacement", "minimize_reuse": "round_robin"}


def no_sampling(reading: Reading, line: int = 0) -> None:
    """Add the alarm of users that are taken in turn."""
    reading.alarm(
        "not-sampled",
        "minimize_reuse takes the users in turn: nothing is drawn by chance, so that no sampling "
        "probability below 1 amplifies the guarantee",
        line,
    )


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
    rounds = options.rounds or whole(
        get("central_num_iterations", "num_compositions", "num_rounds", "rounds")
    )
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
        reading.alarm(
            "noise-scale",
            f"the noise is scaled by {scale:g} (noise_scale, or cohort_size over "
            "noise_cohort_size): epsilon is of a cohort that does not exist",
        )
    if cohort and probability and population and cohort / population > probability * (1 + 1e-6):
        reading.alarm("cohort-mismatch", f"sampling_probability is {probability:g}, the cohort "
                      f"{cohort} of {population}")  # fmt: skip
    sampler = str(get("user_sampler", "sample_type", "sampler", "sampling")).lower()
    law = SAMPLERS.get(sampler, {"poisson": "poisson", "fixed_size": "fixed_size"}.get(sampler))
    if sampler == "random":
        reading.alarm("with-replacement", "users are drawn with replacement (random)")
    if sampler == "minimize_reuse" and (probability is None or probability < 1):
        no_sampling(reading)
    weights = str(get("weighting", "weighting_strategy")).lower()
    if re.search(r"datapoints|num_samples|examples", weights):
        reading.alarm("private-weights", f"weighting is {weights!r}: private counts of users")
    local = source.has("local_epsilon") and not source.has("central_epsilon")
    if epsilon is not None:
        reading.claims.append(Claim(epsilon, delta, Relation.ADD_REMOVE, "the configuration"))
    reading.delta = delta
    if epsilon is not None or noise is not None:
        reading.mechanisms.append(
            Mechanism(
                group="all",
                unit="client",
                protects=LOCAL if local else CENTRAL,
                law="full" if local else law,
                noise=None if noise is None else (noise, noise),
                cohort=cohort,
                population=population,
                rounds=rounds,
                local=local,
            )
        )
    return reading


def read_log(source: Source, options: Options) -> Reading:
    """Metrics of a run: ``DP noise std. dev.`` and the clipping bound."""
    reading, text = Reading(), source.text
    deviations = _numbers(r"DP noise std\. dev\.[^\d\n]{0,12}", text)
    clips = {*_numbers(r"(?:clipping[ _]bound|norm bound)[^\d\n]{0,12}", text)}
    cohort = {*_numbers(r"(?:cohort[ _]size|number of (?:devices|users))[^\d\n]{0,12}", text)}
    claims = _numbers(r"(?<!\w)epsilon[^\d\n]{0,6}", text)
    deltas = _numbers(r"(?<!\w)delta[^\d\n]{0,6}", text)
    reading.delta = deltas[-1] if deltas else None
    if claims:
        reading.claims.append(Claim(claims[-1], reading.delta, Relation.ADD_REMOVE, "the log"))
    if not deviations:
        return reading
    noise = None
    if len(clips) == 1:
        noise = min(deviations) / clips.pop()
    else:
        reading.unknown("noise multiplier", "the log has no one clipping bound")
    sampler = re.search(r"(?:user_)?sampler[^\w\n]{0,6}(\w+)", text)
    reading.mechanisms.append(
        Mechanism(
            group="all",
            unit="client",
            protects=CENTRAL,
            law=SAMPLERS.get(sampler.group(1)) if sampler else None,
            noise=None if noise is None else (noise, noise),
            cohort=cohort.pop() if len(cohort) == 1 else None,
            population=options.population,
            rounds=len(deviations),
        )
    )
    if noise is not None and noise < 1e-2:
        reading.alarm(
            "no-noise",
            f"the noise is {noise:.3g} of the clipping bound: it hides no user's update",
        )
    return reading


def _numbers(pattern: str, text: str) -> list[float]:
    found: list[Any] = re.findall(pattern + r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)", text, re.IGNORECASE)
    return [float(one) for one in found]
