"""SwAV's loop: prototypes normalized under no_grad at each step and their gradient set to None in the first steps, Sinkhorn assignments from a queue of features, multi-crop forwards grouped by size, LARS-like layer scaling, cosine schedule set by hand for each step."""
# PRELUDE
class SwAV(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(True), nn.Linear(16, 8))
        self.prototypes = nn.Linear(8, 10, bias=False)

    def forward(self, crops):
        ends = torch.cumsum(torch.unique_consecutive(torch.tensor([c.shape[-1] for c in crops]), return_counts=True)[1], 0)
        start, out = 0, None
        for end in ends:
            f = self.body(torch.cat(crops[start:end]))
            out = f if start == 0 else torch.cat((out, f))
            start = end
        z = F.normalize(self.head(out), dim=1)
        return z, self.prototypes(z)


@torch.no_grad()
def sinkhorn(out, eps=0.05, iters=3):
    q = torch.exp(out / eps).t()
    k, b = q.shape
    q /= q.sum()
    for _ in range(iters):
        q /= q.sum(1, keepdim=True)
        q /= k
        q /= q.sum(0, keepdim=True)
        q /= b
    return (q * b).t()


m = SwAV()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
queue = torch.zeros(2, 12, 8)
for s in range(10):
    for g in opt.param_groups:
        g["lr"] = 0.05 * (1 + np.cos(np.pi * s / 10))
    with torch.no_grad():
        w = m.prototypes.weight.data.clone()
        m.prototypes.weight.copy_(F.normalize(w, dim=1, p=2))
    g = torch.Generator().manual_seed(s)
    crops = [torch.rand(4, 3, 16, 16, generator=g) for _ in range(2)] + [torch.rand(4, 3, 8, 8, generator=g) for _ in range(3)]
    z, out = m(crops)
    z = z.detach()
    loss = 0
    for i in range(2):
        with torch.no_grad():
            o = out[4 * i : 4 * i + 4].detach()
            if s >= 3:
                o = torch.cat((queue[i] @ m.prototypes.weight.t(), o))
            queue[i, 4:] = queue[i, :-4].clone()
            queue[i, :4] = z[4 * i : 4 * i + 4]
            q = sinkhorn(o)[-4:]
        loss -= sum((q * F.log_softmax(out[4 * v : 4 * v + 4] / 0.1, 1)).sum(1).mean() for v in range(5) if v != i) / 4
    loss /= 2
    opt.zero_grad()
    loss.backward()
    if s < 2:
        for n, p in m.named_parameters():
            if "prototypes" in n:
                p.grad = None
    for p in m.parameters():
        if p.grad is not None and p.dim() > 1:
            p.grad.mul_(0.02 * p.detach().norm() / (p.grad.norm() + 1e-4 * p.detach().norm() + 1e-8))
    opt.step()
    print(s, loss.item().hex(), H(q, queue), M(m))
print(H(opt.state_dict()), R())
