import flwr as fl
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader


def train(net, loader, epochs):
    privacy_engine = PrivacyEngine()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    net, optimizer, loader = privacy_engine.make_private(
        module=net,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=1.1,
        max_grad_norm=1.0,
    )
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
    return privacy_engine.get_epsilon(delta=1e-5)


class Client(fl.client.NumPyClient):
    def __init__(self, net, trainset):
        self.net = net
        self.loader = DataLoader(trainset, batch_size=64)

    def fit(self, parameters, config):
        set_weights(self.net, parameters)
        epsilon = self.local_training()
        return get_weights(self.net), len(self.loader.dataset), {"epsilon": epsilon}

    def local_training(self):
        return train(self.net, self.loader, 1)
