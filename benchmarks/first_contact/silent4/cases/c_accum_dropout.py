from _training import *
x, y = blobs(3000, s=1.5); net = nn.Sequential(nn.Linear(16, 96), nn.ReLU(), nn.Dropout(.3), nn.Linear(96, 96), nn.ReLU(), nn.Dropout(.3), nn.Linear(96, 4)); opt = torch.optim.Adam(net.parameters(), 1e-3, weight_decay=1e-4); sched = torch.optim.lr_scheduler.LinearLR(opt, 1., .1, 800)
for step in range(800):
    opt.zero_grad()
    for _ in range(4):
        i = torch.randint(3000, (16,)); loss = F.cross_entropy(net(x[i]), y[i]) / 4; loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.); opt.step(); sched.step()
net.eval(); truth(acc=acc(net, x, y))
