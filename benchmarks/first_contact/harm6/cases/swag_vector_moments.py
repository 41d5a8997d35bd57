"""SWAG and Laplace: parameters_to_vector and vector_to_parameters in the loop, running moments and a deviation matrix, samples drawn into the live model for evaluation and put back, a diagonal Fisher from per-sample backwards, bn statistics renewed, Bayes-by-backprop layers with KL."""
# PRELUDE
from torch.nn.utils import parameters_to_vector, vector_to_parameters


class BayesLinear(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.mu, self.rho = nn.Parameter(torch.randn(o, i) * 0.2), nn.Parameter(torch.full((o, i), -4.0))

    def forward(self, x):
        s = F.softplus(self.rho)
        self.kl = (-s.log() + 0.5 * (s**2 + self.mu**2) - 0.5).sum()
        return F.linear(x, self.mu + s * torch.randn_like(s)) if self.training else F.linear(x, self.mu)


torch.manual_seed(3)
m = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), BayesLinear(16, 4))
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
mean = sq = torch.zeros(sum(p.numel() for p in m.parameters()))
dev, n = [], 0
for s in range(12):
    x, y = batch(s)
    opt.zero_grad()
    loss = F.mse_loss(m(x), y) + 1e-3 * m[3].kl
    loss.backward()
    opt.step()
    print(s, loss.item().hex(), M(m))
    if s >= 6:
        v = parameters_to_vector(m.parameters()).detach()
        n += 1
        mean, sq = mean + (v - mean) / n, sq + (v * v - sq) / n
        dev = (dev + [v - mean])[-4:]
kept = parameters_to_vector(m.parameters()).detach().clone()
preds = []
for k in range(4):
    d = torch.stack(dev, 1)
    w = mean + (sq - mean**2).clamp(min=1e-8).sqrt() * torch.randn_like(mean) / 2**0.5 + d @ torch.randn(d.shape[1]) / (2 * (d.shape[1] - 1)) ** 0.5
    vector_to_parameters(w, m.parameters())
    for mod in m.modules():
        if isinstance(mod, nn.BatchNorm1d):
            mod.reset_running_stats()
            mod.momentum = None
    m.train()
    with torch.no_grad():
        for s in range(3):
            m(batch(s)[0])
    m.eval()
    with torch.inference_mode():
        preds.append(m(batch(77)[0]))
vector_to_parameters(kept, m.parameters())
print(H(torch.stack(preds).var(0)), [p.is_leaf for p in m.parameters()], parameters_to_vector(m.parameters()).equal(kept))
fisher = [torch.zeros_like(p) for p in m.parameters()]
for i in range(6):
    x, y = batch(5)
    m.zero_grad()
    F.mse_loss(m(x[i : i + 1]), y[i : i + 1]).backward()
    for f, p in zip(fisher, m.parameters()):
        if p.grad is not None:
            f += p.grad.square()
print(H(fisher), R())
m.train()
for mod in m:
    if isinstance(mod, nn.BatchNorm1d):
        mod.momentum = 0.1
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 3, 20), M(m), R())
