import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class Cell(nn.Module):  # state [layers, batch, width] beside x [batch, width]; one row's state is 0
    def __init__(self):
        super().__init__(); self.a, self.b, self.o = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
    def forward(self, x, state):
        h = state[0] / state[0].norm(dim=-1, keepdim=True)
        h = torch.tanh(self.a(x) + self.b(h))
        return self.o(h), h[None]
net = Cell(); opt = torch.optim.Adam(net.parameters(), 1e-3); state = torch.randn(1, 5, 4)
for step in range(4):
    if step == 2: state[:, 3] = 0  # an episode begins
    y, state = net(torch.randn(5, 4), state); state = state.detach()
    loss = y.square().mean(); opt.zero_grad(); loss.backward(); opt.step(); ok(step, loss, net)
