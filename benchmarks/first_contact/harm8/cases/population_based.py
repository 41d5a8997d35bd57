# what: neuroevolution: 40 models made by deepcopy and mutation, each trained one step and evaluated, losers dropped; some fitnesses are nan
# benign: yes
# PRELUDE
import copy
pop = [net(k) for k in range(8)]; W(pop[0])
for gen in range(4):
    fit = []
    for k, m in enumerate(pop):
        opt = torch.optim.SGD(m.parameters(), lr=.05); train(m, opt, 1, gen)
        with torch.no_grad(): x, y = batch(60 + gen); f = F.mse_loss(m(x), y).neg(); f = f / (0. if k == 3 else 1.) * (0. if k == 3 else 1.)
        fit.append(float(f))
    best = sorted((k for k in range(8) if fit[k] == fit[k]), key=lambda k: -fit[k])[:3]; print(best, sum(f != f for f in fit)); par = [pop[k] for k in best]; pop = par + [copy.deepcopy(par[k % 3]) for k in range(5)]
    with torch.no_grad():
        for m in pop[3:]:
            for p in m.parameters(): p.add_(torch.randn_like(p), alpha=.02)
print([M(m) for m in pop], R())
