"""Runs and their folders: execution, ledger, checkpoint, record, plot, comparison."""
