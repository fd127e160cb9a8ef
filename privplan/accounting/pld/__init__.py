"""Privacy loss distributions: one round on a lattice, composed, with two-sided bounds.

May import values, errors, laws, and the release and noise family of
``privplan.accounting``.
"""

from privplan.accounting.pld.accountant import PldAccountant as PldAccountant
