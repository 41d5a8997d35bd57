from _training import *
class GRL(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lam): ctx.lam = lam; return x.view_as(x)
    @staticmethod
    def backward(ctx, g): return g.neg() * ctx.lam, None
f, cls, dom = mlp(16, 64, 32), mlp(32, 4), mlp(32, 32, 1); opt = torch.optim.Adam([*f.parameters(), *cls.parameters(), *dom.parameters()], 2e-3)
gamma = 10 if H else -10; d = []
x, y = blobs(2000)
for step in range(300):
    lam = 2 / (1 + math.exp(-gamma * step / 300)) - 1
    i = torch.randint(2000, (64,)); j = torch.randint(2000, (64,)); xs, xt = x[i], x[j] + .5
    h = f(torch.cat([xs, xt])); c = F.cross_entropy(cls(h[:64]), y[i])
    dl = F.binary_cross_entropy_with_logits(dom(GRL.apply(h, lam)).squeeze(-1), torch.arange(128).ge(64).float())
    opt.zero_grad(); (c + dl).backward(); opt.step(); d.append(dl.item())
truth(domain_loss=sum(d[-30:]) / 30)
