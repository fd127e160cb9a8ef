"""The engine: experiment, training loop, rounds, evaluation and measurements of releases."""
