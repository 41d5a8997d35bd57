"""A PINN of DeepXDE (Adam, then L-BFGS): losses and saved history.

Source: https://github.com/lululxvi/deepxde (examples: Poisson 1D); NeuroDiffGym/neurodiffeq/issues/83
"""
# PRELUDE
os.environ["DDE_BACKEND"] = "pytorch"
import io, contextlib
buf = io.StringIO()
with contextlib.redirect_stdout(buf), contextlib.redirect_stderr(buf):
    import deepxde as dde
    dde.config.set_random_seed(1)
    geom = dde.geometry.Interval(-1, 1)
    pde = lambda x, y: dde.grad.hessian(y, x) + np.pi ** 2 * torch.sin(np.pi * x)
    bc = dde.icbc.DirichletBC(geom, lambda x: 0, lambda _, on: on)
    data = dde.data.PDE(geom, pde, bc, 8, 2)
    m = dde.Model(data, dde.nn.FNN([1, 8, 1], "tanh", "Glorot uniform"))
    m.compile("adam", lr=1e-3, verbose=0)
    h, st = m.train(iterations=6, display_every=3, verbose=0)
    dde.optimizers.set_LBFGS_options(maxiter=5)
    m.compile("L-BFGS", verbose=0)
    h, st = m.train(verbose=0, display_every=5)
print([[float(v).hex() for v in l] for l in h.loss_train], M(m.net), R())
