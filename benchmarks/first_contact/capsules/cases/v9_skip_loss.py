"""Shortest: --on-nonfinite skip stops at a loss that is inf once though its gradients are finite."""
import torch

torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
opt = torch.optim.SGD(model.parameters(), 0.1)
for k in range(5):
    opt.zero_grad()
    out = model(torch.randn(8, 8))
    loss = out.square().mean() + torch.tensor(0.0 if k == 2 else 1.0).log() * -1
    loss.backward()
    opt.step()
print("end")
