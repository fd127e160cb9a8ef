"""Specs: what a person writes down, the rules between fields, presets."""
