from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping as ServerClipping
from flwr.serverapp.strategy import FedAdam

app = ServerApp()


@app.main()
def main(grid, context):
    strategy = FedAdam(fraction_train=0.1, fraction_evaluate=0.0, min_available_nodes=1000, eta=1e-2, tau=1e-3)
    strategy = ServerClipping(strategy, 1.1, 1.0, 100)
    strategy.start(grid=grid, initial_arrays=arrays(), num_rounds=20)
