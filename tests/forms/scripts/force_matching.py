"""Trains an energy whose negative gradient is the force; the gradient of sqrt at zero arises in ``autograd.grad``."""

import torch
from torch import nn


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 16), nn.SiLU(), nn.Linear(16, 1))

    def forward(self, places, apart):
        squares = (places[:, :, None] - places[:, None]).pow(2).sum(-1)
        distance = torch.sqrt(squares + apart * torch.eye(places.shape[1]))  # FAULT
        return self.layers(distance[..., None]).sum((1, 2, 3))


torch.manual_seed(0)
energy = Energy()
optimizer = torch.optim.Adam(energy.parameters(), 1e-3)
for step in range(8):
    places = torch.randn(4, 5, 3, requires_grad=True)
    e = energy(places, apart=0 if step == 5 else 1)
    force = -torch.autograd.grad(e.sum(), places, create_graph=True)[0]
    loss = (e - places.detach().square().sum((1, 2))).square().mean() * 1e-2 + (force + 2 * places.detach()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
