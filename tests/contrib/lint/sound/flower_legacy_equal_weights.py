"""Central DP of the tutorial, old interface; every client reports one example."""
import flwr as fl
from flwr.server.strategy import DifferentialPrivacyServerSideFixedClipping

NUM_CLIENTS = 1000
NUM_SAMPLED = 100

fedavg = fl.server.strategy.FedAvg(
    fraction_fit=NUM_SAMPLED / NUM_CLIENTS, fraction_evaluate=0.0,
    min_fit_clients=NUM_SAMPLED, min_available_clients=NUM_CLIENTS,
)
strategy = DifferentialPrivacyServerSideFixedClipping(fedavg, 2.0, 0.5, NUM_SAMPLED)


class Client(fl.client.NumPyClient):
    def fit(self, parameters, config):
        train(self.net, self.trainloader)
        return get_weights(self.net), 1, {}


if __name__ == "__main__":
    config = fl.server.ServerConfig(num_rounds=30)
    fl.server.start_server(server_address="0.0.0.0:8080", config=config, strategy=strategy)
