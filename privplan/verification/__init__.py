"""From a plan and the ledger of a run to a verdict."""
