"""An algorithm, a data set, a model and a sampling law for privplan."""
