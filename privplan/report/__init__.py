"""Tables, text lines and pictures of plans, verdicts and sweeps; nothing here prints.

May import all packages of ``privplan`` except the command line.
"""
