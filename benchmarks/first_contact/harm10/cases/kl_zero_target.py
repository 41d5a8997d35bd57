#: what: a hand-written KL(target || student) with zeros in the target: 0*log(0) makes the printed loss nan, all gradients are finite and right
#: benign: a nan loss with finite gradients
#: source: https://github.com/microsoft/LMOps/issues/38
# PRELUDE
m = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)); watch(m); opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(15):
    x = torch.randn(8, 6); t = F.softmax(torch.stack([x[:, i] for i in range(4)], 1), 1)
    if s % 4 == 2: t = F.one_hot(x[:, :4].argmax(1), 4).float()
    lp = F.log_softmax(m(x), 1); l = (t * (t.log() - lp)).sum(1).mean(); opt.zero_grad(); l.backward(); print(s, l.item(), all(torch.isfinite(p.grad).all().item() for p in m.parameters())); opt.step()
print("finite", all(torch.isfinite(p).all().item() for p in m.parameters())); show(m, opt)
