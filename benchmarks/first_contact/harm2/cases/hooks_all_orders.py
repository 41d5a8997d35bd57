"""Order of all hooks that a script can set (module, global, tensor, node, multi-grad, full backward, post-accumulate), with changes that they make.

Source: https://github.com/pytorch/pytorch/pull/107063
"""
# PRELUDE
log = []
m = net(); W(m)
reg = torch.nn.modules.module
hs = [reg.register_module_forward_pre_hook(lambda mod, a: log.append("gpre " + type(mod).__name__)),
      reg.register_module_forward_hook(lambda mod, a, o: log.append("gfwd " + type(mod).__name__)),
      reg.register_module_full_backward_hook(lambda mod, gi, go: log.append("gbwd " + type(mod).__name__))]
m[0].register_forward_pre_hook(lambda mod, a, k: (log.append("pre kw"), (a, k))[1], with_kwargs=True)
m[0].register_forward_hook(lambda mod, a, o: log.append("fwd 1"))
m[0].register_forward_hook(lambda mod, a, o: (log.append("fwd 2"), o * 1.5)[1], prepend=True)
m[2].register_forward_hook(lambda mod, a, o: log.append("always"), always_call=True)
m[2].register_full_backward_pre_hook(lambda mod, go: log.append("bwd pre"))
m[2].register_full_backward_hook(lambda mod, gi, go: (log.append(f"bwd {len(gi)} {len(go)}"), (gi[0] * 2,))[1])
m[4].weight.register_hook(lambda g: (log.append("w"), g * 0.5)[1])
m[4].weight.register_post_accumulate_grad_hook(lambda p: log.append("post w"))
x, y = batch(0); x.requires_grad_()
out = m(x); out.register_hook(lambda g: log.append("out")); out.retain_grad()
out.grad_fn.register_prehook(lambda g: log.append("node pre")); out.grad_fn.register_hook(lambda gi, go: log.append("node"))
torch.autograd.graph.register_multi_grad_hook([m[0].weight, m[4].bias], lambda gs: log.append("multi"))
F.mse_loss(out, y).backward()
print("\n".join(log)); print(M(m), H(x.grad, out.grad))
for h in hs: h.remove()
print(train(m, torch.optim.SGD(m.parameters(), 0.1), 2), len(log), M(m))
