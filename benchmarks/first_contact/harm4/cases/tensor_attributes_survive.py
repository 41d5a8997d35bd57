"""Attributes that the script puts on weights, gradients, activations, inputs; identity of Python objects over a step; what vars() of them shows."""
# PRELUDE
m = net(7)
m[0].weight.tag = "first"
m[0].weight.is_shared = True
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
names = {p: n for n, p in m.named_parameters()}
kept = []


class Mark(nn.Module):
    def forward(self, x):
        x.marked = getattr(x, "marked", 0) + 1
        return x


m.add_module("mark", Mark())
for s in range(4):
    x, y = batch(s)
    x.source = f"batch {s}"
    opt.zero_grad(set_to_none=False)
    out = m(x)
    print(vars(x), vars(out), {names[p]: sorted(vars(p)) for p in m.parameters() if vars(p)})
    F.mse_loss(out, y).backward()
    g = m[0].weight.grad
    print(vars(g), g is m[0].weight.grad, g._backward_hooks, m[0].weight._backward_hooks, out._backward_hooks is None, m[0].weight._post_accumulate_grad_hooks)
    g.seen = s
    opt.step()
print(m[0].weight.tag, list(names.values()), [p in names for p in m.parameters()], M(m), R())
