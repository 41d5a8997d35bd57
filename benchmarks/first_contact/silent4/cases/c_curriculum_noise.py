from _training import *
x, y = blobs(3000, s=.5); net = nn.Sequential(nn.Linear(16, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 4)); opt = torch.optim.SGD(net.parameters(), .05, momentum=.9, nesterov=True)
for stage, noise in enumerate((0., .8, 1.6, 2.4)):
    for step in range(250):
        i = torch.randint(3000, (64,)); loss = F.cross_entropy(net(x[i] + noise * torch.randn(64, 16)), y[i], label_smoothing=.05); opt.zero_grad(); loss.backward(); opt.step()
truth(loss=loss.item(), acc=acc(net, x, y))
