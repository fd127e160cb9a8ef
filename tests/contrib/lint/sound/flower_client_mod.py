import flwr as fl
from flwr.client import ClientApp
from flwr.client.mod import fixedclipping_mod
from flwr.server import ServerApp, ServerAppComponents, ServerConfig


def server_fn(context):
    inner = fl.server.strategy.FedAvg(fraction_fit=0.2, fraction_evaluate=0.0, min_available_clients=100)
    strategy = fl.server.strategy.DifferentialPrivacyClientSideFixedClipping(
        inner, noise_multiplier=1.0, clipping_norm=0.3, num_sampled_clients=20
    )
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=10))


client = ClientApp(client_fn=client_fn, mods=[fixedclipping_mod])
server = ServerApp(server_fn=server_fn)
