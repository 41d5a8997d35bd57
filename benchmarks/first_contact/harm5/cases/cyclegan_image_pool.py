"""CycleGAN: one optimizer over itertools.chain of two generators, image pool with random swaps, set_requires_grad of the discriminators, identity loss, lambda schedules, networks saved from cpu copies and moved back."""
# PRELUDE
import itertools
def G():
    return nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(1, 4, 3), nn.InstanceNorm2d(4), nn.ReLU(True), nn.Conv2d(4, 4, 3, 2, 1), nn.ReLU(True), nn.ConvTranspose2d(4, 4, 3, 2, 1, output_padding=1), nn.InstanceNorm2d(4), nn.ReLU(True), nn.Conv2d(4, 1, 3, padding=1), nn.Tanh())
def D():
    return nn.Sequential(nn.Conv2d(1, 4, 4, 2, 1), nn.LeakyReLU(0.2, True), nn.Conv2d(4, 1, 4, 1, 1))
ga, gb, da, db = G(), G(), D(), D()
for x in (ga, gb, da, db):
    x.apply(lambda l: nn.init.normal_(l.weight, 0, 0.02) if hasattr(l, "weight") and l.weight is not None else None)
    W(x)
og = torch.optim.Adam(itertools.chain(ga.parameters(), gb.parameters()), 2e-3, betas=(0.5, 0.999))
od = torch.optim.Adam(itertools.chain(da.parameters(), db.parameters()), 2e-3, betas=(0.5, 0.999))
scs = [torch.optim.lr_scheduler.LambdaLR(o, lambda e: 1.0 - max(0, e - 2) / 3) for o in (og, od)]
class Pool:
    def __init__(self): self.im = []
    def __call__(self, xs):
        out = []
        for x in xs.data:
            x = x[None]
            if len(self.im) < 4:
                self.im.append(x)
                out.append(x)
            elif random.uniform(0, 1) > 0.5:
                i = random.randint(0, 3)
                out.append(self.im[i].clone())
                self.im[i] = x
            else:
                out.append(x)
        return torch.cat(out)
pa, pb = Pool(), Pool()
gan = lambda p, t: F.mse_loss(p, torch.tensor(float(t)).expand_as(p))
for s in range(5):
    a, b = torch.rand(2, 1, 8, 8) * 2 - 1, torch.rand(2, 1, 8, 8) * 2 - 1
    fb = ga(a); ra = gb(fb); fa = gb(b); rb = ga(fa)
    for d in (da, db):
        d.requires_grad_(False)
    og.zero_grad()
    lg = gan(da(fb), 1) + gan(db(fa), 1) + 10 * (F.l1_loss(ra, a) + F.l1_loss(rb, b)) + 5 * F.l1_loss(ga(b), b)
    lg.backward()
    og.step()
    for d in (da, db):
        d.requires_grad_(True)
    od.zero_grad()
    for d, real, fake in ((da, b, pa(fb)), (db, a, pb(fa))):
        ((gan(d(real), 1) + gan(d(fake.detach()), 0)) * 0.5).backward()
    od.step()
    for c in scs:
        c.step()
    print(s, float(lg.detach()).hex(), H(fa, fb))
for n, x in (("ga", ga), ("da", da)):
    torch.save(x.cpu().state_dict(), n + ".pth")
    x.to("cpu")
print([M(x) for x in (ga, gb, da, db)], R())
