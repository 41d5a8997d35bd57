"""An optuna study whose trials train, some pruned by an exception; values and states.

Source: https://github.com/optuna/optuna-examples (pytorch_simple)
"""
# PRELUDE
import optuna
optuna.logging.set_verbosity(optuna.logging.ERROR)
def objective(trial):
    m = net(trial.number)
    opt = getattr(torch.optim, trial.suggest_categorical("opt", ["SGD", "Adam"]))(m.parameters(), trial.suggest_float("lr", 1e-3, 1e-1, log=True))
    for s in range(4):
        v = float.fromhex(train(m, opt, 1, s))
        trial.report(v, s)
        if trial.should_prune() or (trial.number == 3 and s == 1):
            raise optuna.TrialPruned()
    return v
st = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1), pruner=optuna.pruners.MedianPruner(n_startup_trials=2))
st.optimize(objective, n_trials=6)
print([(t.number, t.state.name, sorted(t.params.items()), None if t.value is None else t.value.hex()) for t in st.trials])
