"""Privacy accounting: releases and histories, accountants, calibration, certificates.

May import values, errors, the registry and ``privplan.laws``.
"""
