"""Settings of tables of accuracies, at the papers' sizes and reduced."""
