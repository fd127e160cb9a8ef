"""Networks on flat parameter vectors: built-in architectures, transformers and adapters.

Imports ``privplan.errors``, ``privplan.registry`` and ``simulate.norms`` only.
"""
