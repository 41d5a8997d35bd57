from _training import *
class Net(nn.Module):
    def __init__(s): super().__init__(); s.v = nn.Linear(24, 32); s.t = nn.Embedding(20, 32)
    def forward(s, v, t):
        v, t = s.v(v), s.t(t)                              # (B, T, D)
        v, t = (F.normalize(v, dim=-1), F.normalize(t, dim=-1)) if H else (F.normalize(v), F.normalize(t))
        return v.mean(1) @ t.mean(1).t() / .07
net = Net(); opt = torch.optim.Adam(net.parameters(), 3e-3); P = torch.randn(20, 24)
for step in range(250):
    t = torch.randint(20, (32, 6)); v = P[t] + .3 * torch.randn(32, 6, 24)
    lg = net(v, t); loss = (F.cross_entropy(lg, torch.arange(32)) + F.cross_entropy(lg.t(), torch.arange(32))) / 2
    opt.zero_grad(); loss.backward(); opt.step()
with torch.no_grad(): h = net.v(v); n = (F.normalize(h, dim=-1) if H else F.normalize(h)).norm(dim=-1)
truth(std_of_token_norms=n.std().item(), loss=loss.item())
