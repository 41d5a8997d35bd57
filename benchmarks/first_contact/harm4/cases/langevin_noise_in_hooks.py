"""Stochastic gradient Langevin dynamics: noise drawn in tensor hooks of weights and of activations during backward, in the order of autograd; stochastic depth that skips modules."""
# PRELUDE
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(8, 8)

    def forward(self, x):
        if self.training and torch.rand(()) < 0.4:
            return x
        h = self.f(x)
        if h.requires_grad:
            h.register_hook(lambda g: g + 0.01 * torch.randn_like(g))
        return x + F.dropout(h, 0.2, self.training)


m = nn.Sequential(*[Block() for _ in range(5)], nn.Linear(8, 4))
for p in m.parameters():
    p.register_hook(lambda g: g + 0.02 * torch.randn_like(g))
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(8):
    x, y = batch(s)
    opt.zero_grad()
    loss = F.mse_loss(m(x), y)
    loss.backward()
    opt.step()
    print(s, float(loss.detach()).hex(), [b.f.weight.grad is None for b in m[:5]], R())
    random.random(), np.random.rand()
m.eval()
print(H(m(batch(1)[0])), M(m), R())
