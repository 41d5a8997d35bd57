# what: scipy's L-BFGS-B over weights set from one flat numpy vector; some trial points give inf, which the line search takes
# benign: yes
# PRELUDE
from scipy.optimize import minimize
from torch.nn.utils import parameters_to_vector, vector_to_parameters
model = net().double(); W(model); x, y = batch(1); x, y = x.double(), y.double(); n = [0, 0]
def f(v):
    vector_to_parameters(torch.from_numpy(v.copy()), model.parameters()); model.zero_grad(); n[0] += 1; l = F.mse_loss(model(x), y) * (float('inf') if n[0] == 2 else 1.); n[1] += int(not torch.isfinite(l)); l.backward()
    g = np.concatenate([p.grad.reshape(-1).numpy() for p in model.parameters()]); return (float(l.detach()), np.nan_to_num(g, posinf=1e3, neginf=-1e3))
v0 = parameters_to_vector(model.parameters()).detach().numpy()
r = minimize(f, v0, jac=True, method="L-BFGS-B", options={"maxiter": 6}); print(n, r.nit, float(r.fun).hex(), H(r.x), M(model), R())
