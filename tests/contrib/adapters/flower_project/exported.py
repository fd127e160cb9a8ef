"""Runs an exported project on threads: ``python exported.py FOLDER CLIENTS``."""

import sys

import threads  # noqa: F401
from flwr.simulation import run_simulation

sys.path.insert(0, sys.argv[1])
from guarded.client_app import app as client
from guarded.server_app import app as server

run_simulation(server, client, int(sys.argv[2]))
