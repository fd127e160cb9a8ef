"""Replay of finished runs: a second, simple implementation of what precedes releases.

What follows a release, the model, is computed by ``simulate.postprocessing`` (in
``model.py``, ``model_scores.py``, ``replay.py`` and ``rounds.py``). The other files
import neither the engine, samplers, mechanisms, local rules, transforms and aggregators
nor the checks of a verdict, so that a fault there is not repeated here. They use the
values and files of ``privplan``, data, partition and architecture of the run, and its
recipe.
"""
