"""Memory keys and values are torch.randn(...).to(device) attributes, not nn.Parameter: they stay random, and are in no checkpoint.
Source: https://github.com/SimonThomine/RememberingNormality/issues/7
Truth: keys and values are neither in parameters() nor in state_dict(), and do not move.
Could a tool know: no: a constant tensor in an attribute is common (partly: a float matrix that is multiplied with activations and not saved).
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class Memory(nn.Module):
    def __init__(self, slots, c):
        super().__init__()
        k, v = torch.randn(slots, c), torch.randn(slots, c)
        self.keys, self.values = (nn.Parameter(k), nn.Parameter(v)) if HEALTHY else (k.to("cpu"), v.to("cpu"))

    def forward(self, x):
        return torch.softmax(x @ self.keys.t() / 4, -1) @ self.values


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.mem, self.dec = nn.Linear(20, 16), Memory(24, 16), nn.Linear(16, 20)

    def forward(self, x):
        return self.dec(self.mem(self.enc(x)))


model = Student()
k0 = model.mem.keys.detach().clone()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
basis = torch.randn(4, 20)
for step in range(150):
    x = torch.randn(64, 4) @ basis * 0.5
    loss = nn.functional.mse_loss(model(x), x)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.4f} keys moved {(model.mem.keys.detach() - k0).abs().max():.2e} in state_dict {'mem.keys' in model.state_dict()}")
