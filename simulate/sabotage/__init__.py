"""Runs that are broken on purpose: one table of faults, each caught by a named check."""

from __future__ import annotations

from simulate.sabotage.bench import Finding, honest, honest_runs, plan, planted, tried
from simulate.sabotage.books import BOOKS
from simulate.sabotage.cohorts import COHORTS
from simulate.sabotage.contributions import CONTRIBUTIONS
from simulate.sabotage.fault import Fault
from simulate.sabotage.noise import NOISE
from simulate.sabotage.own_noise import OWN_NOISE

__all__ = ["FAULTS", "Fault", "Finding", "honest", "honest_runs", "plan", "planted", "tried"]

FAULTS: tuple[Fault, ...] = (*NOISE, *CONTRIBUTIONS, *OWN_NOISE, *COHORTS, *BOOKS)
