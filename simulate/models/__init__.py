"""Networks on flat parameter vectors, their kernels and their registry."""
