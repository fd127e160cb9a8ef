"""Runs and their folders: execution, ledger, checkpoint, record, plots, and comparison."""
