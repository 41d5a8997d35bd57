#: what: hand-written fake quantization with running min and max as buffers of inf, updated in forward, half of the layers not called for the first steps
#: benign: buffers of inf that the forward replaces late
#: source: https://github.com/Lightning-AI/pytorch-lightning/issues/8507
# PRELUDE
class FQ(nn.Module):
    def __init__(self): super().__init__(); self.register_buffer("lo", torch.tensor(float("inf"))); self.register_buffer("hi", torch.tensor(float("-inf")))
    def forward(self, x):
        if self.training: self.lo = torch.minimum(self.lo, x.detach().min()); self.hi = torch.maximum(self.hi, x.detach().max())
        s = (self.hi - self.lo) / 255
        return x + (torch.round((x - self.lo) / s) * s + self.lo - x).detach()
class Net(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b, self.c = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 2); self.q = nn.ModuleList(FQ() for _ in range(3))
    def forward(self, x, quant):
        h = self.a(x).relu(); h = self.q[0](h) if quant > 0 else h
        h = self.b(h).relu(); h = self.q[1](h) if quant > 1 else h
        return self.c(h)
m = Net(); watch(m); opt = torch.optim.RMSprop(m.parameters(), 1e-3, momentum=0.5)
for step in range(24):
    x = torch.randn(16, 8); loss = F.mse_loss(m(x, step // 8), x[:, :2]); opt.zero_grad(); loss.backward(); opt.step()
print(loss.item(), [b.item() for b in m.buffers()]); show(m, opt); torch.save(m, "whole.pt") if False else torch.save(m.state_dict(), "s.pt")
