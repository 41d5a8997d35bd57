"""L-BFGS with strong Wolfe search: number of closure calls, losses, state.

Source: https://github.com/Lightning-AI/pytorch-lightning/issues/4188
"""
# PRELUDE
m = net(); W(m)
opt = torch.optim.LBFGS(m.parameters(), lr=0.5, max_iter=8, history_size=4, line_search_fn="strong_wolfe")
x, y = batch(0, 20)
calls = 0
def closure():
    global calls
    calls += 1
    opt.zero_grad()
    loss = F.mse_loss(m(x), y)
    loss.backward()
    return loss
for s in range(4):
    loss = opt.step(closure)
    print(calls, float(loss.detach()).hex(), loss.requires_grad)
st = opt.state[next(iter(opt.state))]
print(st["func_evals"], st["n_iter"], H(st["old_dirs"], st["d"]), M(m), R())
