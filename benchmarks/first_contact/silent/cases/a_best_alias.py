"""The best state is kept as a reference: at the end the last weights are restored.

Source: https://github.com/WenjieDu/PyPOTS/issues/667
Truth: the validation loss after restoring is not the best one seen
Could a tool know: partly: load_state_dict copies each tensor onto itself
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

X = torch.randn(40, 30)
Y = (X[:, 0] + 0.8 * torch.randn(40) > 0).long()
VX = torch.randn(500, 30)
VY = (VX[:, 0] + 0.8 * torch.randn(500) > 0).long()
model = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
best, best_state = 1e9, None
for epoch in range(60):
    for i in torch.randperm(40).split(8):
        loss = F.cross_entropy(model(X[i]), Y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        val = F.cross_entropy(model(VX), VY).item()
    if val < best:
        best, best_state = val, model.state_dict()
        if HEALTHY:
            best_state = {k: v.clone() for k, v in best_state.items()}
    if epoch % 10 == 0:
        print(epoch, round(loss.item(), 4), "val", round(val, 4))
model.load_state_dict(best_state)
with torch.no_grad():
    print("end: best", round(best, 4), "restored", round(F.cross_entropy(model(VX), VY).item(), 4))
