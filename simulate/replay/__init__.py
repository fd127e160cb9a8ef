"""Replay of finished runs: a second, simple implementation of training that checks the first.

The package imports neither the engine, the samplers, mechanisms, local rules,
transforms and aggregators nor the checks of a verdict, so that a fault there is not
repeated here. It uses

- the values and file formats of ``privplan`` (plan, record, ledger, evidence); -
``simulate.data``: the data set and the partition are inputs of a run, bound to it by
digests,
  and neither draws noise nor selects cohorts;
- ``simulate.own_parts``: loads both, the model and the metric of a run; -
``simulate.models``: the architecture and its initial parameters define what is trained.
  Gradients are autograd's, through the forward pass of one client or of several at
  once.
"""
