"""Local update rules: what clients do with their own records."""
