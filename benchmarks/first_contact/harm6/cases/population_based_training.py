"""Population-based training: eight small models with own optimizers and learning rates; the worst copies weights, optimizer state and hyperparameters of the best and perturbs them; members die and are born again; ranking, lineage, weights."""
import copy
# PRELUDE
class Member:
    born = 0

    def __init__(self, lr, parent=None):
        Member.born += 1
        self.name = Member.born
        self.m = net(self.name)
        self.scope = W(self.m)
        self.opt = torch.optim.SGD(self.m.parameters(), lr, momentum=0.9)
        self.lineage = [self.name]

    def exploit(self, other):
        self.m.load_state_dict(copy.deepcopy(other.m.state_dict()))
        self.opt.load_state_dict(copy.deepcopy(other.opt.state_dict()))
        self.lineage = other.lineage + [self.name]

    def explore(self):
        for g in self.opt.param_groups:
            g["lr"] *= random.choice((0.8, 1.25))
        with torch.no_grad():
            for p in self.m.parameters():
                p.add_(torch.randn_like(p), alpha=0.01)

    def score(self):
        self.m.eval()
        with torch.no_grad():
            r = F.mse_loss(self.m(batch(500)[0]), batch(500)[1]).item()
        self.m.train()
        return r


people = [Member(10 ** -random.uniform(1, 3)) for _ in range(8)]
for gen in range(5):
    for p in people:
        train(p.m, p.opt, 3, 3 * gen)
    people.sort(key=Member.score)
    print(gen, [(p.name, p.score().hex()) for p in people[:3]])
    for bad, good in zip(people[-2:], people[:2]):
        bad.exploit(good)
        bad.explore()
    if gen == 2:
        people[4] = Member(0.01)
        people[5].m.apply(lambda l: l.reset_parameters() if hasattr(l, "reset_parameters") else None)
print([(p.name, p.lineage, p.opt.param_groups[0]["lr"], M(p.m), H(p.opt.state_dict())) for p in people], R())
