"""Framework modules of lint: one file per framework, registered in ``reading.FRAMEWORKS``."""
