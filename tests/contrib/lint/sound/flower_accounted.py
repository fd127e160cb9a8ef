from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.supercore.privacy_accounting import NeighboringRelation, PrivacyConfig, RdpAccountant, SamplingMethod

app = ServerApp()

@app.main()
def main(grid, context):
    population, cohort = 6000, 120
    inner = FedAvg(fraction_train=cohort / population, fraction_evaluate=0.0, min_available_nodes=population)
    config = PrivacyConfig(6.98e-5, population, NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION)
    strategy = DifferentialPrivacyServerSideFixedClipping(
        inner, noise_multiplier=1.504, clipping_norm=1.0, num_sampled_clients=cohort,
        accountant=RdpAccountant(config))
    strategy.start(grid=grid, initial_arrays=None, num_rounds=50)
