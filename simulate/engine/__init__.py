"""The engine: experiment, training loop, rounds and evaluation."""
