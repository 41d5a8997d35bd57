from _training import *
net = nn.Sequential(nn.Conv1d(1, 8, 5, 2, 2), nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 16, 5, 2, 2), nn.BatchNorm1d(16), nn.ReLU(), nn.ConvTranspose1d(16, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose1d(8, 1, 4, 2, 1)); opt = torch.optim.Adam(net.parameters(), 2e-3); sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=3, factor=.5)
t = torch.arange(32) / 32 * 6.28
for epoch in range(20):
    net.train()
    for _ in range(45):
        x = (t * torch.randint(1, 4, (32, 1)) + 6.28 * torch.rand(32, 1)).sin()[:, None]; loss = F.mse_loss(net(x + .2 * torch.randn_like(x)), x); opt.zero_grad(); loss.backward(); opt.step()
    net.eval()
    with torch.no_grad(): v = F.mse_loss(net(x), x).item()
    sched.step(v)
truth(val=v)
