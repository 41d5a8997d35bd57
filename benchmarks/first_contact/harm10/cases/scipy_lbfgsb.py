#: what: scipy's L-BFGS-B drives a torch module: parameters written by vector_to_parameters, gradients read as float64
#: source: https://github.com/rfeinman/pytorch-minimize/issues/34
# PRELUDE
from scipy.optimize import minimize
from torch.nn.utils import parameters_to_vector as p2v, vector_to_parameters as v2p
torch.set_default_dtype(torch.float64)
m = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 1)); watch(m); x = torch.rand(40, 2); y = (x[:, :1] * 3).sin() + x[:, 1:] ** 2; evals = []
def fun(w):
    v2p(torch.from_numpy(w.copy()), m.parameters()); m.zero_grad(); loss = F.mse_loss(m(x), y); loss.backward(); evals.append(loss.item())
    return loss.item(), np.concatenate([p.grad.numpy().ravel() for p in m.parameters()])
r = minimize(fun, p2v(m.parameters()).detach().numpy(), jac=True, method="L-BFGS-B", options=dict(maxiter=40))
r2 = minimize(fun, r.x, jac=True, method="CG", options=dict(maxiter=10))
v2p(torch.from_numpy(r2.x), m.parameters()); print(len(evals), r.fun, r2.fun, sha(evals)); show(m)
