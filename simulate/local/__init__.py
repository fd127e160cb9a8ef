"""Local update rules: how clients train on their own records."""
