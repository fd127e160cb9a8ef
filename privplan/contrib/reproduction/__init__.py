"""Reproduction of published tables: what they print, what is computed, and claims.

One module of ``papers`` per paper declares its tables; other packages declare papers by
entry points of the group ``privplan.papers``. Tables of plans are computed here,
without PyTorch; those of runs execute ``simulate`` or ``attack``, which the command
line passes in. Imports planning, verification and the layers below.
"""
