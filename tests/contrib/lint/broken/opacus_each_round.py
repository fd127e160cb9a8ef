import flwr as fl
from opacus import PrivacyEngine


class Client(fl.client.NumPyClient):
    def fit(self, parameters, config):
        set_weights(self.net, parameters)
        engine = PrivacyEngine()
        net, optimizer, loader = engine.make_private(
            module=self.net,
            optimizer=self.optimizer,
            data_loader=self.loader,
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )
        train(net, loader, optimizer)
        print("epsilon", engine.get_epsilon(delta=1e-5))
        return get_weights(net), len(self.loader.dataset), {}
