from _training import *
class GCN(nn.Module):
    def __init__(s): super().__init__(); s.a, s.b, s.o = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 2)
    def forward(s, x, src, dst, batch, n):
        for l in (s.a, s.b):
            h = l(x); x = (h + torch.zeros_like(h).index_add(0, dst, h[src]) / 4).relu()
        return s.o(torch.zeros(n, 32).index_add(0, batch, x) / 6)
net = GCN(); opt = torch.optim.Adam(net.parameters(), 3e-3); B, N, E = 16, 6, 24; a = []
for step in range(250):
    x = torch.randn(B * N, 8); e = torch.randint(N, (B, 2, E)); off = torch.arange(B)[:, None] * N
    same = (x.view(B, N, 8)[:, :, 0].gather(1, e[:, 0]) * x.view(B, N, 8)[:, :, 0].gather(1, e[:, 1])).mean(-1); y = (same > 0).long()
    src, dst = e[:, 0], e[:, 1]
    if H: src, dst = src + off, dst + off
    out = net(x, src.reshape(-1), dst.reshape(-1), torch.arange(B).repeat_interleave(N), B)
    loss = F.cross_entropy(out, y); opt.zero_grad(); loss.backward(); opt.step(); a.append(loss.item())
truth(loss=sum(a[-30:]) / 30)
