"""The training loop and what one round consists of."""
