"""LBFGS with strong Wolfe line search and with none, many evaluations a step, closures that count their calls.

source: pytorch/pytorch#49993, pytorch/pytorch PR 8824
"""
import torch
from fcw import mlp, rng, say, seed, sha, watch, weights

seed(7)
for search in ("strong_wolfe", None):
    model = mlp(2, 6, 1)
    watch(model)
    x = torch.rand(20, 2) * 2 - 1
    y = (x[:, :1] ** 2 - x[:, 1:]).sin()
    opt = torch.optim.LBFGS(model.parameters(), lr=0.5 if search else 0.05, max_iter=12, history_size=5, line_search_fn=search)
    calls = [0]

    def closure():
        calls[0] += 1
        opt.zero_grad()
        loss = (model(x) - y).square().mean() + 1e-3 * sum(p.abs().sum() for p in model.parameters())
        loss.backward()
        return loss

    for step in range(5):
        say(search, opt.step(closure).item().hex(), calls)
    state = opt.state_dict()["state"][0]
    say(state["func_evals"], state["n_iter"], sha(state["d"], state["old_dirs"], state["ro"]), sha(weights(model)))
say(rng())
