"""Networks on flat parameter vectors: built-in ones, transformers and adapters.

Imports ``privplan.errors``, ``privplan.registry`` and ``simulate.norms`` only.
"""
