"""The checks of a verdict, one module per topic."""
