"""One module per paper, with its tables; ``..tables`` has the registry."""
