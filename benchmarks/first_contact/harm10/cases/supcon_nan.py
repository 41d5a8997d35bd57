#: what: supervised contrastive loss: anchors without a positive give 0/0, dropped before the mean
#: benign: nan of anchors without positives, indexed out
#: source: https://github.com/HobbitLong/SupContrast/issues/141
# PRELUDE
enc = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8)); watch(enc); opt = torch.optim.SGD(enc.parameters(), 0.05, momentum=0.9)
def supcon(f, y, t=0.5):
    sim = f @ f.T / t; sim = sim - sim.max(1, keepdim=True)[0].detach()
    eye = torch.eye(len(f), dtype=torch.bool); pos = (y[:, None] == y[None]) & ~eye
    lp = sim - torch.log((sim.exp() * ~eye).sum(1, keepdim=True))
    per = -(pos * lp).sum(1)
    n = pos.sum(1)
    with torch.no_grad(): shown = per / n                     # nan where no positive
    return (per[n > 0] / n[n > 0]).mean(), shown
tot = 0
for step in range(25):
    x = torch.randn(10, 12); y = torch.randint(8, (10,))
    loss, shown = supcon(F.normalize(enc(x), dim=1), y)
    tot += torch.isnan(shown).sum().item()
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, loss.item(), torch.nanmean(shown).item())
print("nan anchors", tot); show(enc, opt)
