# what: MAML by the library higher: patched functional copies of a watched model, second-order gradients
# cmp: status stdout files left
# PRELUDE
import higher
model = net(); W(model); opt = torch.optim.Adam(model.parameters(), lr=.01)
for s in range(4):
    opt.zero_grad(); tot = 0
    for k in range(2):
        xs, ys = batch(10 * s + k); xq, yq = batch(10 * s + k + 5); inner = torch.optim.SGD(model.parameters(), lr=.1)
        with higher.innerloop_ctx(model, inner, copy_initial_weights=False) as (fm, d):
            for _ in range(3): d.step(F.mse_loss(fm(xs), ys))
            q = F.mse_loss(fm(xq), yq); q.backward(); tot += float(q.detach())
    opt.step(); print(tot.hex(), M(model))
print(H(opt.state_dict()), R())
