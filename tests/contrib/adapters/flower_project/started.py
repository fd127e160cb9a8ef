"""Run client_app and server_app of this folder: ``python started.py [ROUNDS]``."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path.cwd()))
import threads  # noqa: F401
from client_app import app as client
from flwr.simulation import run_simulation
from server_app import app as server

SETTINGS = {
    "fraction-evaluate": 0.5,
    "num-server-rounds": int((sys.argv[1:] or [3])[0]),
    "learning-rate": 0.1,
    "local-epochs": 1,
    "batch-size": 10,
}
sys.modules["flwr.simulation.run_simulation"].UserConfig = lambda: dict(SETTINGS)


def configured(message, context):
    return client(message, replace(context, run_config=SETTINGS))


run_simulation(server, configured, 20)
