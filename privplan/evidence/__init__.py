"""The evidence of a run beside its ledger: for its replay, and of its noise."""
