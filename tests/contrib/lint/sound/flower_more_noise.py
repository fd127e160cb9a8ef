import flwr as fl

strategy = fl.server.strategy.FedAvg(fraction_fit=0.05, fraction_evaluate=0.0, min_available_clients=1000)
strategy = fl.server.strategy.DifferentialPrivacyServerSideFixedClipping(
    strategy, noise_multiplier=1.2, clipping_norm=1.0, num_sampled_clients=50
)
fl.server.start_server(config=fl.server.ServerConfig(num_rounds=40), strategy=strategy)
