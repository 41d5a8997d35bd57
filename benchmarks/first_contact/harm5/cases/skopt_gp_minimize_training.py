"""Hyperparameters by gp_minimize, each point a training; optuna with an sqlite storage, callbacks, a failed trial that is caught, and enqueue_trial; numpy's warnings as they are."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
from skopt import gp_minimize
from skopt.space import Real, Integer
import optuna
optuna.logging.set_verbosity(optuna.logging.ERROR)
def obj(lr, h):
    m = net(1, h=int(h))
    W(m)
    return float.fromhex(train(m, torch.optim.SGD(m.parameters(), lr), 4))
r = gp_minimize(lambda p: obj(*p), [Real(1e-3, 0.3, prior="log-uniform"), Integer(4, 16)], n_calls=9, n_initial_points=6, random_state=3)
print([float(v).hex() for v in r.func_vals], r.x[1])
def o(t):
    if t.number == 2:
        raise ValueError("bad trial")
    return obj(t.suggest_float("lr", 1e-3, 0.3, log=True), t.suggest_int("h", 4, 16))
st = optuna.create_study(storage="sqlite:///s.db", study_name="a", sampler=optuna.samplers.TPESampler(seed=1))
st.enqueue_trial({"lr": 0.1, "h": 8})
st.optimize(o, n_trials=6, catch=(ValueError,), callbacks=[lambda s, t: print(t.number, t.state.name)])
st2 = optuna.load_study(storage="sqlite:///s.db", study_name="a")
print(float(st2.best_value).hex(), len(st2.trials), R())
os.remove("s.db")
