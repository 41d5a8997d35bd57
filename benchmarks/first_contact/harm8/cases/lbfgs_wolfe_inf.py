# what: LBFGS with strong Wolfe line search whose trial points have an inf loss (returned without backward as zero gradients), which it steps back from
# benign: yes
# PRELUDE
model = net(); W(model); opt = torch.optim.LBFGS(model.parameters(), lr=2., max_iter=6, line_search_fn="strong_wolfe"); n = [0, 0]; ls = []
def closure():
    opt.zero_grad(); x, y = batch(0); o = model(x); l = F.mse_loss(o, y) - 1e-2 * torch.log(3. - o.abs().max()) ; n[0] += 1
    if not torch.isfinite(l): n[1] += 1; l = (o * 0).sum() + 1e3
    l.backward(); ls.append(float(l.detach()).hex()); return l
for s in range(4): opt.step(closure); print(n, ls[-1])
print(H(ls), M(model), R())
