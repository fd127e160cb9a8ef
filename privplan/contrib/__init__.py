"""Optional parts: each folder is one part with its own commands, tests, extra and page.

The core neither imports nor names them; they register themselves through entry points.
"""
