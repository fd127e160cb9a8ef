"""The budget book: spent and remaining epsilon of groups over many runs, in a database.

May import accounting, planning, verification, plan and record.
"""
