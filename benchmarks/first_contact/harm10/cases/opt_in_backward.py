#: what: one optimizer per parameter, stepped in post_accumulate_grad hooks during backward and grads freed at once; clipping inside the hook where a gradient is inf
#: benign: inf gradients clamped in the hook before the step
#: source: https://pytorch.org/docs/stable/generated/torch.Tensor.register_post_accumulate_grad_hook.html
# PRELUDE
m = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 2)); m.register_parameter("s", nn.Parameter(torch.zeros(2))); watch(m); opts = {p: torch.optim.Adam([p], 1e-2, foreach=False) for p in m.parameters()}; seen = []
def hook(p):
    if not torch.isfinite(p.grad).all(): seen.append(tuple(p.shape)); p.grad.nan_to_num_(0.0, 1.0, -1.0)
    p.grad.clamp_(-1, 1); opts[p].step(); opts[p].zero_grad()
for p in m.parameters(): p.register_post_accumulate_grad_hook(hook)
for s in range(15): x = torch.randn(8, 5); y = m[2](m[1](m[0](x))) + (m.s.clamp(min=0)).sqrt(); l = F.mse_loss(m(x), x[:, :2]) + F.mse_loss(y, x[:, :2] + 1); l.backward(); m.s.data.clamp_(0, 0) if s % 3 == 0 else None; print(l.item(), [p.grad for p in m.parameters()])
print(len(seen), sha([[v for v in o.state.values()] for o in opts.values()])); show(m)
