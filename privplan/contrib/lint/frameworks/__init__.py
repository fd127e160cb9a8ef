"""Framework modules of lint: one file per framework, behind ``FRAMEWORKS``."""
