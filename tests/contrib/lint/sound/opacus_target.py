import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader


def train(model, dataset, epochs):
    loader = DataLoader(dataset, batch_size=100)
    optimizer = torch.optim.Adam(model.parameters())
    engine = PrivacyEngine(accountant="rdp")
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model, optimizer=optimizer, data_loader=loader, epochs=20,
        target_epsilon=4.0, target_delta=1e-5, max_grad_norm=1.2,
    )
    for _ in range(epochs):
        for x, y in loader:
            loss(model(x), y).backward()
            optimizer.step()


train(make_model(), load(), 20)
