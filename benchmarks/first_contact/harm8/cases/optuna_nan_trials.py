# what: an optuna study with trials that diverge to nan (failed trials), pruned trials, a fixed sampler
# benign: yes
# cmp: status stdout files left
# PRELUDE
import optuna, math
optuna.logging.set_verbosity(optuna.logging.ERROR)
def objective(t):
    lr = t.suggest_float("lr", 1e-3, 1e3, log=True); model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=lr); v = 0.
    for s in range(30):
        x, y = batch(s % 3); opt.zero_grad(); l = F.mse_loss(model(x), y); v = float(l.detach()); t.report(v if math.isfinite(v) else 1e9, s)
        if not math.isfinite(v): return float("nan")
        if v > 1e6: raise optuna.TrialPruned()
        l.backward(); opt.step()
    return v
s = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=4)); s.optimize(objective, n_trials=6)
for t in s.trials: print(t.state.name, t.params["lr"].hex(), t.value)
print(R())
