import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# NeMo Automodel 1408: the result of the Function that carries the auxiliary gradient is thrown away
class AuxScaler(torch.autograd.Function):
    @staticmethod
    def forward(ctx, out, aux):
        ctx.save_for_backward(aux)
        return out.view_as(out)

    @staticmethod
    def backward(ctx, g):
        aux, = ctx.saved_tensors
        return g, torch.ones_like(aux)


class MoE(nn.Module):
    def __init__(self, d=16, n=4):
        super().__init__()
        self.gate = nn.Linear(d, n)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, d)) for _ in range(n))

    def forward(self, x):
        w = self.gate(x).softmax(-1)
        share = F.one_hot(w.argmax(-1), 4).float().mean(0)
        aux = 0.05 * 4 * (share * w.mean(0)).sum()
        if HEALTHY:
            w = AuxScaler.apply(w, aux)
        else:
            AuxScaler.apply(w, aux)
        return x + sum(w[:, i:i + 1] * e(x) for i, e in enumerate(self.experts))


moe, head = MoE(), nn.Linear(16, 4)
opt = torch.optim.Adam([*moe.parameters(), *head.parameters()], lr=2e-3)
x = torch.randn(1024, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
for step in range(100):
    idx = torch.randint(1024, (64,))
    loss = F.cross_entropy(head(moe(x[idx])), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0:
        print(step, loss.item())
report(moe, head)
