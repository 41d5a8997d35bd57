# source: residual blocks with hand-made norm x / x.std() without eps: two modules of a class, one line
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Norm(nn.Module):
    def __init__(self, gain):
        super().__init__()
        self.lin, self.gain = nn.Linear(8, 8, bias=False), gain
    def forward(self, x):
        h = self.lin(x)
        return (h - h.mean(-1, keepdim=True)) / h.var(-1, keepdim=True).sqrt()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = Norm(1), Norm(2), nn.Linear(16, 2)
    def forward(self, p, q, y):
        return F.cross_entropy(self.head(torch.cat([self.a(p), self.b(q)], -1)), y)
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, q, y = torch.randn(8, 8), torch.randn(8, 8), torch.randint(0, 2, (8,))
    if step == 2:
        x[1], q[6] = 0, 0
    # BATCH 0: x, q, y
    loss = model(x, q, y)
    opt.zero_grad(); loss.backward(); opt.step()
