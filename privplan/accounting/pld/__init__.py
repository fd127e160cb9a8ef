"""Privacy loss distributions with lower and upper bounds: one round on a lattice, then composed.

May import values, errors, laws, and the release and noise family of ``privplan.accounting``.
"""

from privplan.accounting.pld.accountant import PldAccountant as PldAccountant
