"""A script that walks grad_fn.next_functions of loss and outputs: names and number of nodes, as a picture maker does.

Source: https://github.com/pytorch/pytorch/issues/5534
"""
# PRELUDE
m = net(); W(m)
def walk(f):
    seen, order, stack = set(), [], [f]
    while stack:
        n = stack.pop()
        if n is None or n in seen: continue
        seen.add(n); order.append(n.name()); stack += [a for a, _ in n.next_functions]
    return order
for s in range(2):
    x, y = batch(s); out = m(x); loss = F.mse_loss(out, y)
    print(walk(loss.grad_fn)); print(walk(out.grad_fn) == walk(loss.grad_fn)[1:], out.grad_fn.metadata, out.grad_fn._sequence_nr() > 0)
    loss.backward()
c = torch.autograd.graph.get_gradient_edge(m[4].weight); print(c.node.name(), c.output_nr, c.node.variable is m[4].weight)
print(M(m))
