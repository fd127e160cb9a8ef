import flwr as fl
from flwr.client.mod import fixedclipping_mod, secaggplus_mod
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

inner = fl.server.strategy.FedAvg(fraction_fit=0.08, fraction_evaluate=0.0, min_available_clients=5000)
strategy = fl.server.strategy.DifferentialPrivacyClientSideFixedClipping(
    inner, noise_multiplier=1.0, clipping_norm=0.3, num_sampled_clients=400
)
workflow = DefaultWorkflow(
    fit_workflow=SecAggPlusWorkflow(
        num_shares=7, reconstruction_threshold=4, quantization_range=2**22, modulus_range=2**32
    )
)
config = fl.server.ServerConfig(num_rounds=10)
