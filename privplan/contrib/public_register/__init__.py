"""The public report of a plan or run, with the fields of deployment registries."""
