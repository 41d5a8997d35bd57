"""Hooks on single saved variables of nodes (grad_fn._raw_saved_*.register_hooks), nodes' prehooks and hooks, metadata and saved attributes of a watched model's graph: what they get, how often, error texts."""
# PRELUDE
m = nn.Sequential(nn.Linear(8, 16), nn.Sigmoid(), nn.Linear(16, 4), nn.Softplus())
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
log = []


def pack(x):
    log.append(("pack", tuple(x.shape)))
    return x.to(torch.bfloat16), x.dtype


def unpack(t):
    log.append(("unpack", tuple(t[0].shape)))
    return t[0].to(t[1])


for s in range(4):
    x, y = batch(s)
    opt.zero_grad()
    h = m[1](m[0](x))
    h.grad_fn._raw_saved_result.register_hooks(pack, unpack)
    out = m[3](m[2](h))
    out.grad_fn._raw_saved_self.register_hooks(pack, unpack)
    out.grad_fn.metadata["mine"] = s
    out.grad_fn.register_prehook(lambda g: log.append(("pre", H(g))))
    h.grad_fn.register_hook(lambda gi, go: log.append(("hook", len(gi), len(go), H(gi[0]))))
    print(out.grad_fn.name(), h.grad_fn.next_functions[0][0].name(), sorted(out.grad_fn.metadata), H(out.grad_fn._saved_self), out.grad_fn._saved_beta)
    loss = F.mse_loss(out, y)
    loss.backward()
    opt.step()
    print(s, loss.item().hex(), M(m))
try:
    h.grad_fn._saved_result
except RuntimeError as e:
    print(str(e)[:80])
z = m(batch(8)[0])
try:
    z.grad_fn._raw_saved_self.register_hooks(lambda x: x, lambda x: x)
    z.grad_fn._raw_saved_self.register_hooks(lambda x: x, lambda x: x)
except RuntimeError as e:
    print(e)
z = m(batch(8)[0])
try:
    z.grad_fn._raw_saved_self.register_hooks(lambda x: 5, lambda x: 5)
    z.sum().backward()
except (RuntimeError, TypeError) as e:
    print(type(e).__name__, str(e)[:80])
print(len(log), H(log), log[:6], train(m, opt, 2, 30), M(m))
