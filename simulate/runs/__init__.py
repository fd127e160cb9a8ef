"""Runs in their folders: started, resumed, compared, drawn."""
