"""References of the catalogue's methods, and mutations that they catch, by family."""

from tests.simulate.algorithms.references import personal, records, sparse, sums
from tests.simulate.case import Case

CASES: tuple[Case, ...] = (*sums.CASES, *sparse.CASES, *personal.CASES, *records.CASES)
