"""The guard of a deployment: cohorts, noise and ledger of a plan, in any framework.

A training loop of another framework asks the guard who takes part in a round, hands it
the update of each client, gets the noised sum, and stores the model through it. What
runs is then the plan: the guard refuses every release that would exceed the plan or the
budget of a group, and resumes after a kill with the same bits. This package imports
numpy and the layers of ``privplan`` below it, never torch and never a framework.
"""

from privplan.guard.budgets import BudgetExceededError as BudgetExceededError
from privplan.guard.cohort import Cohort as Cohort
from privplan.guard.guard import Guard as Guard
from privplan.guard.open_round import GroupTotal as GroupTotal
from privplan.guard.rounds import Released as Released
from privplan.guard.vectors import Layout as Layout
from privplan.guard.vectors import clip as clip
