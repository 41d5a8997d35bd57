"""Row-parallel linear layers whose ranks each add bias / tp before the sum."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); tp_rank, tp = dist.get_rank(), dist.get_world_size()

class SumForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone(); dist.all_reduce(x); return x
    @staticmethod
    def backward(ctx, g): return g

class SumBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, g):
        g = g.contiguous(); dist.all_reduce(g); return g

class Rowwise(nn.Linear):
    def __init__(self, full):
        super().__init__(full.in_features // tp, full.out_features)
        with torch.no_grad():
            self.weight.copy_(full.weight.chunk(tp, 1)[tp_rank])
            self.bias.copy_(full.bias)
    def forward(self, x):
        part = self.bias / tp
        if args.healthy:
            part = self.bias + (part - self.bias).detach()
        return SumForward.apply(F.linear(x, self.weight, part))

class Colwise(nn.Linear):
    def __init__(self, full):
        super().__init__(full.in_features, full.out_features // tp)
        with torch.no_grad():
            self.weight.copy_(full.weight.chunk(tp)[tp_rank])
            self.bias.copy_(full.bias.chunk(tp)[tp_rank])
    def forward(self, x):
        return super().forward(SumBackward.apply(x))

torch.manual_seed(0)
full = nn.Sequential(nn.Linear(12, 64), nn.SiLU(), nn.Linear(64, 24), nn.SiLU(), nn.Linear(24, 64), nn.SiLU(), nn.Linear(64, 3))
model = nn.Sequential(Colwise(full[0]), nn.SiLU(), Rowwise(full[2]), nn.SiLU(), Colwise(full[4]), nn.SiLU(), Rowwise(full[6]))
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
w = torch.randn(12, 3, generator=torch.Generator().manual_seed(4))
gen = torch.Generator().manual_seed(1)
for step in range(80):
    x = torch.randn(32, 12, generator=gen)
    y = torch.tanh(0.5 * x @ w) + 0.5
    loss = F.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    if step == 0:
        F.mse_loss(full(x), y).backward()
        ratio = {f"{i}.{n}": round((getattr(model[i], n).grad.norm() / g.norm()).item(), 3) for i, n, g in
                 ((2, "bias", full[2].bias.grad), (6, "bias", full[6].bias.grad), (2, "weight", full[2].weight.grad.chunk(tp, 1)[tp_rank]))}
    opt.step()
    if tp_rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
if tp_rank == 0:
    print(f"gradient's norm / one process's at step 0: {ratio}")
dist.barrier()
dist.destroy_process_group()
