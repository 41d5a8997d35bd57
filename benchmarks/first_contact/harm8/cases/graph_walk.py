# what: torchviz's dot source of the graph of a training step, node hooks, prehooks, metadata, counts of nodes
# PRELUDE
import collections
model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1)
for s in range(3):
    x, y = batch(s); opt.zero_grad(); l = F.mse_loss(model(x), y); seen = []; todo = collections.deque([l.grad_fn])
    while todo:
        f = todo.popleft(); seen.append(f.name()); f.metadata["mine"] = len(seen)
        todo.extend(n for n, _ in f.next_functions if n is not None)
    log = []; l.grad_fn.register_prehook(lambda g: log.append(H(g[0]))); l.grad_fn.register_hook(lambda gi, go: log.append(H(gi[0])))
    h = torch.autograd.graph.register_multi_grad_hook(tuple(model.parameters()), lambda gs: log.append(len([g for g in gs if g is not None])))
    e = torch.autograd.graph.get_gradient_edge(model[0].weight); print(seen, type(e.node).__name__, sorted(l.grad_fn.metadata))
    l.backward(); h.remove(); opt.step(); print(log)
print(M(model), R())
