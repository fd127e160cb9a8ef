"""Callbacks of a run: the interface, and trackers that write metrics for other programs.

One module per tracker. Imports the planner's values and nothing else of the simulator.
"""
