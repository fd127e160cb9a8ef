"""Schedulers of clusters, on which sweeps are computed (``--on``)."""
