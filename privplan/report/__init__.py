"""Tables, text lines and figures of plans, verdicts, sweeps and frontiers; nothing here prints.

May import all packages of ``privplan`` except the command line.
"""
