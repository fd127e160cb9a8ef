"""DP-SGD on tabular records."""
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

BATCH = 250
EPOCHS = 10
DELTA = 1e-6

model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
loss = nn.CrossEntropyLoss()
dataset = datasets.MNIST("data", transform=transforms.ToTensor())
loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
engine = PrivacyEngine()
model, optimizer, loader = engine.make_private(
    module=model,
    optimizer=optimizer,
    data_loader=loader,
    noise_multiplier=1.1,
    max_grad_norm=1.0,
)
for epoch in range(EPOCHS):
    for x, y in loader:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    print(f"epsilon = {engine.get_epsilon(DELTA):.2f}")
