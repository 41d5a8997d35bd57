"""Chunked LM losses (torch's own linear_cross_entropy where it exists, an autograd.Function that computes gradients in its forward, and checkpointed chunks) must keep losses, gradients, versions and views."""
# PRELUDE
from torch.utils.checkpoint import checkpoint


class Fused(torch.autograd.Function):
    runs = 0

    @staticmethod
    def forward(ctx, h, w, y, chunk):
        Fused.runs += 1
        gh, gw, total = torch.zeros_like(h), torch.zeros_like(w), h.new_zeros(())
        n = (y != -100).sum().clamp(min=1)
        for i in range(0, len(h), chunk):
            with torch.enable_grad():
                a, b = h[i : i + chunk].detach().requires_grad_(), w.detach().requires_grad_()
                l = F.cross_entropy(a @ b.t(), y[i : i + chunk], reduction="sum", ignore_index=-100) / n
            ga, gb = torch.autograd.grad(l, (a, b))
            gh[i : i + chunk] = ga
            gw.add_(gb)
            total += l.detach()
        ctx.save_for_backward(gh, gw)
        return total

    @staticmethod
    def backward(ctx, g):
        gh, gw = ctx.saved_tensors
        if not torch.equal(g, torch.ones_like(g)):
            gh.mul_(g), gw.mul_(g)
        return gh, gw, None, None


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.r, self.head = nn.Embedding(37, 12), nn.GRU(12, 12, batch_first=True), nn.Linear(12, 37, bias=False)
        self.head.weight = self.e.weight

    def forward(self, t):
        return self.r(self.e(t))[0]


torch.manual_seed(0)
m = LM()
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2)
own = getattr(F, "linear_cross_entropy", None)
print("own", own is not None)
for s in range(6):
    t = torch.randint(0, 37, (3, 11), generator=torch.Generator().manual_seed(s))
    y = t[:, 1:].flatten().clone()
    y[::4] = -100
    h = m(t)[:, :-1].flatten(0, 1)
    h.retain_grad()
    kind = s % 3
    if kind == 0:
        loss = Fused.apply(h, m.head.weight, y, 8)
    elif kind == 1 and own is not None:
        try:
            loss = own(h, m.head.weight, y, ignore_index=-100)
        except TypeError as e:
            print(str(e)[:80])
            loss = F.cross_entropy(h @ m.head.weight.T, y)
    else:
        parts = [checkpoint(lambda a, b, w: F.cross_entropy(a @ w.t(), b, reduction="sum"), h[i : i + 7], y[i : i + 7], m.head.weight, use_reentrant=bool(s % 2)) for i in range(0, len(h), 7)]
        loss = torch.stack(parts).sum() / (y != -100).sum()
    opt.zero_grad()
    loss.backward()
    print(s, kind, float(loss.detach()).hex(), loss._version, loss._is_view(), loss.grad_fn.name(), H(h.grad), h.grad._version, h.grad.stride(), Fused.runs)
    opt.step()
    with torch.no_grad():
        ev = own(h, m.head.weight, y) if own is not None and kind == 1 else F.cross_entropy(h @ m.head.weight.T, y)
        empty = F.cross_entropy(h @ m.head.weight.T, torch.full_like(y, -100))
        print(s, H(ev), ev._version, ev._is_view(), empty.item(), M(m), m.head.weight is m.e.weight, m.e.weight._version)
