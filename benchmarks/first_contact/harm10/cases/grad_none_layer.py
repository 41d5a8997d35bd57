#: what: a gradient that is not finite is set to None for its layer only, the optimizer steps the rest (RLlib's TorchLearner)
#: benign: nan gradients dropped per parameter
#: source: https://github.com/ray-project/ray/pull/47452
# PRELUDE
m = nn.ModuleDict({"enc": nn.Linear(4, 8), "pi": nn.Linear(8, 3), "v": nn.Linear(8, 1)}); watch(m); opt = torch.optim.Adam(m.parameters(), 1e-2, amsgrad=True); n = 0
for step in range(20):
    x = torch.randn(8, 4); h = m["enc"](x).tanh(); v = m["v"](h.detach()).squeeze(1)
    loss = F.cross_entropy(m["pi"](h), (x[:, 1] > 0).long()) + (torch.sqrt((v - v.detach()).abs()).mean() if step % 5 == 3 else v.pow(2).mean())
    opt.zero_grad(); loss.backward()
    for p in m.parameters():
        if p.grad is not None and not torch.isfinite(p.grad).all(): p.grad = None; n += 1
    opt.step(); print(step, loss.item())
print(n); show(m, opt)
