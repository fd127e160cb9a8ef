"""Pilots: short training without privacy that measures planning constants."""
