import torch
from torch import nn

torch.manual_seed(0)


class M(nn.Module):
    def __init__(s):
        super().__init__()
        s.l = nn.Linear(4, 4)

    def forward(s, x, y, k):
        logits = s.l(x)
        loss = (logits * k).square().mean() - y.mean()  # FAULT
        return logits, loss


m = M()
opt = torch.optim.SGD(m.parameters(), lr=0.1)
c = torch.compile(m, backend="aot_eager")
for i in range(4):
    k = torch.tensor(1.0 if i != 2 else 1e38)
    logits, loss = c(torch.randn(3, 4), torch.randn(3), k)
    opt.zero_grad()
    loss.backward()
    opt.step()
