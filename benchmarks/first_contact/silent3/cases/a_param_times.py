"""self.gamma = nn.Parameter(torch.from_numpy(...)).float() (or .to(device), .cuda()): the result is no parameter, and is in no optimizer.
Source: from memory (a common question in PyTorch's forum: "nn.Parameter(...).cuda() is not in parameters()")
Truth: the gammas are not in named_parameters() and never change.
Could a tool know: yes: gradients arrive at a leaf that a module's attribute is computed from, and no optimizer has it.
"""
import sys
import numpy as np
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class LayerScaleBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc1, self.fc2, self.norm = nn.Linear(d, 2 * d), nn.Linear(2 * d, d), nn.LayerNorm(d)
        if HEALTHY:
            self.gamma = nn.Parameter(torch.ones(d) * 0.1)
        else:
            self.gamma = nn.Parameter(torch.from_numpy(np.full(d, 0.1))).float()

    def forward(self, x):
        return x + self.gamma * self.fc2(torch.nn.functional.gelu(self.fc1(self.norm(x))))


model = nn.Sequential(nn.Linear(8, 32), *[LayerScaleBlock(32) for _ in range(3)], nn.Linear(32, 1))
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
w = torch.randn(8, 1)
for step in range(150):
    x = torch.randn(64, 8)
    loss = nn.functional.mse_loss(model(x), torch.sin(x @ w))
    opt.zero_grad()
    loss.backward()
    opt.step()
n = sum("gamma" in k for k, _ in model.named_parameters())
print(f"loss {loss.item():.4f} gammas among the parameters: {n}, values {model[1].gamma.detach()[:3].tolist()}")
