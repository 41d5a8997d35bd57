#: what: learning to rank with padded lists: scores of padding -inf in a forward, ListMLE, NDCG with ideal 0 (0/0) averaged by nanmean, model chosen by it
#: benign: -inf scores and nan metric
#: source: https://github.com/allegro/allRank/pull/25
# PRELUDE
class R(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
    def forward(self, x, pad): return self.f(x).squeeze(-1).masked_fill(pad, float("-inf"))
m = R(); watch(m); opt = torch.optim.Adagrad(m.parameters(), 0.05); best = (-float("inf"), None)
def listmle(s, y, pad):
    o = y.masked_fill(pad, -1).argsort(1, descending=True); ss = s.gather(1, o); pp = pad.gather(1, o); z = ss.flip(1).logcumsumexp(1).flip(1)
    return (z - ss)[~pp].mean()
def ndcg(s, y, pad):
    d = 1 / torch.log2(torch.arange(2, 10).float()); g = (2 ** y - 1).masked_fill(pad, 0); return ((g.gather(1, s.argsort(1, descending=True)) * d).sum(1) / (g.sort(1, descending=True)[0] * d).sum(1))
for ep in range(8):
    for _ in range(4):
        x = torch.randn(6, 8, 5); pad = torch.arange(8)[None] >= torch.randint(2, 9, (6, 1)); y = (x[..., 0] > 0.8).float() * torch.randint(1, 4, (6, 8)); s = m(x, pad); l = listmle(s, y, pad); opt.zero_grad(); l.backward(); opt.step()
    nd = ndcg(m(x, pad), y, pad); v = torch.nanmean(nd).item()
    if v > best[0]: best = (v, {k: t.clone() for k, t in m.state_dict().items()})
    print(ep, l.item(), nd.tolist())
m.load_state_dict(best[1]); show(m, opt); torch.save(best, "best.pt")
