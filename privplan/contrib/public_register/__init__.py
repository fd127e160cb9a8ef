"""The public report of a plan or run, with the fields that deployment registries ask for."""
