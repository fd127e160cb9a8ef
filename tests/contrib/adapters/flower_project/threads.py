"""Workers of flwr's simulation on threads of this process; flwr's own start Ray.

Ray takes longer to start than the runs of the tests.
"""

import sys
import types
from importlib.machinery import ModuleSpec


class Threads:
    """A backend of the simulation."""

    def __init__(self, config):
        self.app = None
        self.num_workers = 2

    def build(self, app_fn):
        self.app = app_fn()

    def is_worker_idle(self):
        return True

    def process_message(self, message, context):
        return self.app(message, context), context

    def terminate(self):
        pass


ray = types.ModuleType("flwr.server.superlink.fleet.vce.backend.raybackend")
ray.RayBackend = Threads
sys.modules[ray.__name__] = ray
if "ray" not in sys.modules:  # flwr 1.42 looks for it first
    sys.modules["ray"] = types.ModuleType("ray")
    sys.modules["ray"].__spec__ = ModuleSpec("ray", None)
