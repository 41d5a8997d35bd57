# what: forward-mode AD (dual numbers, jvp) through a model between training steps, also as a directional-derivative trainer
# PRELUDE
import torch.autograd.forward_ad as fw
model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1)
for s in range(4):
    x, y = batch(s); g = torch.Generator().manual_seed(s)
    with fw.dual_level():
        d = model(fw.make_dual(x, torch.randn(x.shape, generator=g))); p, t = fw.unpack_dual(d); print(H(p, t), t is None)
    opt.zero_grad(); l = F.mse_loss(model(x), y); l.backward(); opt.step(); print(float(l.detach()).hex())
    v = {k: torch.randn(p.shape, generator=g) for k, p in model.named_parameters()}   # forward gradient
    w = {k: p.detach() for k, p in model.named_parameters()}
    f = lambda q: F.mse_loss(torch.func.functional_call(model, q, (x,)), y)
    _, dv = torch.func.jvp(f, (w,), (v,))
    with torch.no_grad():
        for k, p in model.named_parameters(): p -= .01 * dv * v[k]
    print(float(dv).hex())
print(M(model), R())
