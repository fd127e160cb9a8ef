from flwr.client import ClientApp
from flwr.client.mod import LocalDpMod
from flwr.server import ServerConfig

local_dp = LocalDpMod(clipping_norm=1.0, sensitivity=2.0, epsilon=1.0, delta=1e-5)
app = ClientApp(client_fn=client_fn, mods=[local_dp])
config = ServerConfig(num_rounds=1)
