import flwr as fl


def main():
    strategy = fl.server.strategy.FedAvg(fraction_fit=0.1, fraction_evaluate=0.0, min_available_clients=500)
    dp_strategy = fl.server.strategy.DifferentialPrivacyServerSideAdaptiveClipping(
        strategy=strategy, noise_multiplier=1.5, initial_clipping_norm=0.1, num_sampled_clients=50
    )
    fl.server.start_server(config=fl.server.ServerConfig(num_rounds=25), strategy=dp_strategy)


if __name__ == "__main__":
    main()
