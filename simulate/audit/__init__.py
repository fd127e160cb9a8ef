"""Canaries in real rounds: what they send, when, and what is seen of them afterwards."""
