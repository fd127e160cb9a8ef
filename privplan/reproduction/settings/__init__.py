"""Settings of tables of runs, at the papers' sizes and reduced."""
