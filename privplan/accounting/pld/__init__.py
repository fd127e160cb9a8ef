"""Privacy loss distributions with lower and upper bounds."""
