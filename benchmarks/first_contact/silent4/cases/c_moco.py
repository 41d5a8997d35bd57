from _training import *
q = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32)); k = copy.deepcopy(q).requires_grad_(False); queue = F.normalize(torch.randn(256, 32), dim=-1); opt = torch.optim.SGD(q.parameters(), .06, momentum=.9, weight_decay=1e-4); sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 900); x, y = blobs(2000, c=8, s=.6); ls = []
for step in range(900):
    i = torch.randint(2000, (64,)); a, b = x[i] + .3 * torch.randn(64, 16), x[i] + .3 * torch.randn(64, 16); z = F.normalize(q(a), dim=-1)
    with torch.no_grad():
        for pk, pq in zip(k.parameters(), q.parameters()): pk.mul_(.99).add_(pq, alpha=.01)
        zk = F.normalize(k(b), dim=-1)
    lg = torch.cat([(z * zk).sum(-1, keepdim=True), z @ queue.t()], 1) / .2; loss = F.cross_entropy(lg, torch.zeros(64, dtype=torch.long)); opt.zero_grad(); loss.backward(); opt.step(); sched.step(); queue = torch.cat([zk, queue])[:256]; ls.append(loss.item())
truth(first=ls[0], last=sum(ls[-30:]) / 30)
