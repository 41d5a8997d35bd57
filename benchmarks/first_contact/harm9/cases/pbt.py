"""Population-based training: deep copies of model and optimizer together (exploit), rates perturbed, some members diverge to inf and are replaced."""
# PRELUDE
import copy
seed(46)


class Member:
    def __init__(self, lr):
        self.net = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 1))
        self.opt = torch.optim.SGD(self.net.parameters(), lr, momentum=0.9)
        self.sched = torch.optim.lr_scheduler.ExponentialLR(self.opt, 0.99)
        self.score = -math.inf


pop = [Member(10 ** -(i % 4)) for i in range(6)]
for m in pop:
    watch(m.net)
for gen in range(5):
    for m in pop:
        for _ in range(4):
            x = torch.randn(16, 5)
            loss = F.mse_loss(m.net(x), x.prod(1, keepdim=True))
            m.opt.zero_grad(); loss.backward(); m.opt.step()
            m.sched.step()
        with torch.no_grad():
            x = torch.randn(16, 5)
            m.score = -F.mse_loss(m.net(x), x.prod(1, keepdim=True)).item()
    pop.sort(key=lambda m: -m.score)
    print(gen, [dig(m.score) for m in pop])
    for i in (-1, -2):
        pop[i] = copy.deepcopy(pop[0 if i == -1 else 1])
        for g in pop[i].opt.param_groups:
            g["lr"] *= random.choice([0.8, 1.2])
        assert pop[i].opt.param_groups[0]["params"][0] is pop[i].net[0].weight
for m in pop:
    end(m.net, m.opt)
