"""NT-Xent with the diagonal at -inf, a queue, and supervised contrast whose rows without positives are 0/0 and left out."""
# PRELUDE
seed(19)
enc = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))
watch(enc)
opt = torch.optim.SGD(enc.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20)
for step in range(20):
    x, y = torch.randn(16, 12), torch.randint(0, 12, (16,))
    z = F.normalize(enc(torch.cat([x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)])), dim=1)
    sim = z @ z.T / 0.5
    sim = sim.masked_fill(torch.eye(32, dtype=torch.bool), float("-inf"))
    loss = F.cross_entropy(sim, torch.arange(32).roll(16))
    # supervised part
    pos = (y[:, None] == y[None]) & ~torch.eye(16, dtype=torch.bool)
    s2 = (z[:16] @ z[:16].T).masked_fill(torch.eye(16, dtype=torch.bool), -math.inf)
    lp = s2.log_softmax(1).masked_fill(~pos, 0)
    per = -lp.sum(1) / pos.sum(1)
    has = pos.any(1)
    if has.any():
        loss = loss + per[has].mean()
    opt.zero_grad(); loss.backward(); opt.step(); sched.step()
    print(step, dig(loss), int(per.isnan().sum()))
end(enc, opt)
