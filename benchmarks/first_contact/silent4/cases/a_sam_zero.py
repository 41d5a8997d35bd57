from _training import *
class SAM:
    def __init__(s, params, base, rho=.05, **k): s.p = list(params); s.opt = base(s.p, **k); s.rho = rho
    @torch.no_grad()
    def first_step(s):
        n = sum(p.grad.norm() ** 2 for p in s.p).sqrt() + 1e-12; s.e = [p.grad * s.rho / n for p in s.p]
        for p, e in zip(s.p, s.e): p.add_(e)
        if H: s.opt.zero_grad()
    @torch.no_grad()
    def second_step(s):
        for p, e in zip(s.p, s.e): p.sub_(e)
        s.norm = sum(p.grad.norm() ** 2 for p in s.p).sqrt().item()
        s.opt.step(); s.opt.zero_grad()
x, y = blobs(2000, s=2.); net = mlp(16, 64, 4); sam = SAM(net.parameters(), torch.optim.SGD, lr=.05, momentum=.9); n = 0
for step in range(200):
    i = torch.randint(2000, (64,))
    F.cross_entropy(net(x[i]), y[i]).backward(); sam.first_step()
    loss = F.cross_entropy(net(x[i]), y[i]); loss.backward(); sam.second_step(); n += sam.norm / 200
truth(gradient_norm_stepped=n, loss=loss.item())
