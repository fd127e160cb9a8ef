"""Numbers as they stand in the papers, one module per paper."""
