"""Pilots: short training without privacy that measures planning constants."""

from __future__ import annotations
