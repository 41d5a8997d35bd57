from _training import *
emb, m, o = nn.Embedding(20, 32), nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU()), nn.Linear(64, 20); ps = [*emb.parameters(), *m.parameters(), *o.parameters()]; opt = torch.optim.RMSprop(ps, 1e-3); L = Lost()
sched = torch.optim.lr_scheduler.CyclicLR(opt, 1e-4, 3e-3, step_size_up=20, mode="exp_range", gamma=.995 if H else 1.03, cycle_momentum=False)
for step in range(350):
    x = torch.randint(20, (64,)); y = torch.where(torch.rand(64) < .1, torch.randint(20, (64,)), (x * 3 + 1) % 20); loss = F.cross_entropy(o(m(emb(x))), y)
    if L.add(loss): break
    opt.zero_grad(); loss.backward(); opt.step(); sched.step()
L.end()
