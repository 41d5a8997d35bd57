"""Multi-task regression with nan for missing labels (chemprop, Tox21): mask by isfinite, zero the targets, weigh by mask."""
# PRELUDE
seed(5)
net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 6))
watch(net)
opt = torch.optim.Adam(net.parameters(), 3e-3)
X, Y = torch.randn(96, 10), torch.randn(96, 6)
Y[torch.rand(96, 6) < 0.4] = float("nan")
Y[:, 5][::2] = float("nan")
for epoch in range(5):
    net.train()
    for i in torch.randperm(96).split(16):
        x, y = X[i], Y[i]
        mask = y.isfinite()
        loss = (F.mse_loss(net(x), y.nan_to_num(nan=0.0), reduction="none") * mask).sum() / mask.sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        p = net(X)
        raw = F.mse_loss(p, Y, reduction="none")
        per_task = torch.nanmean(raw, 0)
        naive = raw.mean(0)
        r = torch.stack([torch.corrcoef(torch.stack([p[:, t], Y[:, t]]))[0, 1] for t in range(6)])
        print(epoch, dig(loss, per_task, naive, r), int(naive.isnan().sum()), int(r.isnan().sum()))
end(net, opt)
