"""DETR: a transformer with queries, auxiliary losses per layer, scipy's assignment on detached costs, GIoU; NeRF: positional encoding, coarse and fine networks, inverse-CDF samples, chunks, exp decay; SIREN with a Laplacian from double autograd.grad."""
# PRELUDE
from scipy.optimize import linear_sum_assignment
from torchvision.ops import generalized_box_iou, box_convert
class DETR(nn.Module):
    def __init__(self):
        super().__init__()
        self.bb, self.q = nn.Conv2d(3, 16, 4, 4), nn.Embedding(4, 16)
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 24, 0.1, batch_first=True), 1)
        self.dec = nn.ModuleList(nn.TransformerDecoderLayer(16, 2, 24, 0.1, batch_first=True) for _ in range(2))
        self.cl, self.box = nn.Linear(16, 4), nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    def forward(self, x):
        mem = self.enc(self.bb(x).flatten(2).transpose(1, 2))
        h, outs = self.q.weight.expand(len(x), -1, -1), []
        for d in self.dec:
            h = d(h, mem)
            outs.append((self.cl(h), self.box(h).sigmoid()))
        return outs
m = DETR()
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-3)
for s in range(3):
    x = torch.randn(2, 3, 16, 16)
    tg = [(torch.randint(0, 3, (k,)), torch.rand(k, 4) * 0.3 + 0.2) for k in (1, 3)]
    loss = 0
    for lg, bx in m(x):
        for i, (c, b) in enumerate(tg):
            with torch.no_grad():
                cost = torch.cdist(bx[i], b, 1) - lg[i].softmax(-1)[:, c] - generalized_box_iou(box_convert(bx[i], "cxcywh", "xyxy"), box_convert(b, "cxcywh", "xyxy"))
            r, k = linear_sum_assignment(cost)
            t = torch.full((4,), 3)
            t[r] = c[k]
            loss = loss + F.cross_entropy(lg[i], t) + F.l1_loss(bx[i][r], b[k]) + (1 - generalized_box_iou(box_convert(bx[i][r], "cxcywh", "xyxy"), box_convert(b[k], "cxcywh", "xyxy")).diag()).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(m.parameters(), 0.1)
    opt.step()
    print("detr", s, float(loss.detach()).hex())
def pe(x): return torch.cat([x] + [f(2.0 ** i * x) for i in range(3) for f in (torch.sin, torch.cos)], -1)
co, fi = net(3, 21, 16, 4), net(4, 21, 16, 4)
W(co), W(fi)
opt = torch.optim.Adam([*co.parameters(), *fi.parameters()], 5e-3)
def render(n, o, d, z):
    r = torch.cat([n(c) for c in pe(o[:, None] + d[:, None] * z[..., None]).flatten(0, 1).split(20)]).view(*z.shape, 4)
    a = 1 - torch.exp(-F.relu(r[..., 3] + torch.randn(z.shape)) * torch.cat([z.diff(dim=1), torch.full((len(z), 1), 1e10)], 1))
    w = a * torch.cumprod(torch.cat([torch.ones(len(z), 1), 1 - a + 1e-10], 1), 1)[:, :-1]
    return (w[..., None] * r[..., :3].sigmoid()).sum(1), w
for s in range(4):
    o, d, t = torch.randn(6, 3), F.normalize(torch.randn(6, 3), dim=-1), torch.rand(6, 3)
    z = torch.linspace(0.5, 2, 8) + torch.rand(6, 8) * 0.1
    c0, w = render(co, o, d, z)
    pdf = (w.detach() + 1e-5) / (w.detach() + 1e-5).sum(1, keepdim=True)
    i = torch.searchsorted(pdf.cumsum(1).contiguous(), torch.rand(6, 6)).clamp(max=7)
    c1, _ = render(fi, o, d, torch.sort(torch.cat([z, z.gather(1, i)], 1), 1)[0])
    loss = F.mse_loss(c0, t) + F.mse_loss(c1, t)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print("nerf", s, float(loss.detach()).hex())
class Sine(nn.Module):
    def forward(self, x): return torch.sin(10 * x)
si = nn.Sequential(nn.Linear(2, 12), Sine(), nn.Linear(12, 12), Sine(), nn.Linear(12, 1))
W(si)
opt = torch.optim.Adam(si.parameters(), 1e-3)
for s in range(3):
    xy = torch.rand(16, 2).requires_grad_()
    u = si(xy)
    g = torch.autograd.grad(u, xy, torch.ones_like(u), create_graph=True)[0]
    lap = sum(torch.autograd.grad(g[:, k], xy, torch.ones(16), create_graph=True)[0][:, k] for k in range(2))
    loss = (lap - xy.sum(1)).square().mean() * 1e-3
    opt.zero_grad()
    loss.backward()
    opt.step()
print(float(loss.detach()).hex(), M(m), M(co), M(fi), M(si), R())
