"""Planning: from budgets to sampling ratios, noise, weights and a certificate."""
