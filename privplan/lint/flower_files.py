"""Configurations and logs of Flower; ``frameworks.flower`` reads its scripts."""

from __future__ import annotations

import re

from privplan.accounting.release import Relation
from privplan.lint.expressions import number, whole
from privplan.lint.reading import Claim, Mechanism, Options, Reading
from privplan.lint.source import Source

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
    population = options.population or whole(
        source.setting("population_size", "num_supernodes", "num_clients", "population")
    )
    cohort = sampled
    if fraction is not None and population:
        least = whole(source.setting(*LEAST)) or 2
        cohort = min(max(int(population * fraction), least), population)
        if sampled is not None and cohort < sampled:
            noise = None if noise is None else noise * cohort / sampled
            reading.alarm(
                "cohort-mismatch",
                f"num-sampled-clients is {sampled} but the fraction draws {cohort}: the noise is "
                f"for {sampled}",
            )
        elif sampled is not None and noise is not None:
            noise *= cohort / sampled
    enough = whole(source.setting(*AVAILABLE))
    if enough is not None and population and enough < population and fraction not in (None, 1.0):
        reading.alarm(
            "connected-ratio",
            f"min-available is {enough} of {population} registered clients: the fraction is of "
            "the connected ones",
        )
    evaluated = number(source.setting("fraction_evaluate"))
    if evaluated:
        reading.alarm(
            "evaluation",
            f"fraction-evaluate is {evaluated:g}: clients send metrics of their data without noise",
        )
    if "median" in str(source.setting("clipping_norm", "clipping", "clip")).lower():
        reading.alarm("unpaid-clipping", "the clipping norm is a median of the clients' norms, "
                      "which no accountant counts")  # fmt: skip
    weights = str(source.setting("weighted_by_key", "weighting", "weights")).lower()
    if "example" in weights or "sample" in weights:
        reading.alarm("private-weights", f"weights are {weights}: private counts of the clients")
    _config_modulus(source, reading, cohort)
    side = "Client" if "client" in str(source.setting("strategy")).lower() else "Server"
    if noise is not None or source.has("noise_multiplier"):
        reading.mechanisms.append(
            Mechanism(
                group="all",
                unit="client",
                protects=PROTECTS[side],
                law="fixed_size",
                noise=None if noise is None else (noise, noise),
                cohort=cohort,
                population=population,
                rounds=whole(source.setting("num_server_rounds", "num_rounds", "rounds")),
            )
        )
    claimed = number(source.setting("epsilon", "target_epsilon", "max_epsilon"))
    reading.delta = number(source.setting("delta", "target_delta"))
    if claimed is not None:
        reading.claims.append(Claim(claimed, reading.delta, None, "the configuration"))
    return reading


def _config_modulus(source: Source, reading: Reading, cohort: int | None) -> None:
    target, modulus = (
        whole(source.setting(name)) for name in ("quantization_range", "modulus_range")
    )
    if cohort and target and modulus and cohort * target > modulus:
        reading.alarm(
            "modulus",
            f"{cohort} clients times quantization-range {target} exceed modulus-range {modulus}: "
            "the sum wraps around",
        )


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
        reading.claims.append(
            Claim(float(epsilon), reading.delta, Relation.ADD_REMOVE, "the log", releases)
        )
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
        reading.alarm(
            "connected-ratio",
            f"cohorts are drawn from {min(connected)} to {max(connected)} connected clients, not "
            f"from {population}",
        )
    if received and cohorts and min(received) < min(cohorts):
        reading.alarm(
            "cohort-mismatch",
            f"{min(received)} clients answered of {min(cohorts)} drawn: the mean of fewer clients "
            "got the noise for all",
        )
    reading.mechanisms.append(
        Mechanism(
            group="all",
            unit="client",
            protects=PROTECTS["Server"],
            law="fixed_size" if drawn else None,
            noise=None if low is None or high is None else (low, high),
            cohort=max(cohorts) if cohorts else None,
            population=min(connected) if connected and not options.population else population,
            rounds=len(deviations),
        )
    )
    return reading
