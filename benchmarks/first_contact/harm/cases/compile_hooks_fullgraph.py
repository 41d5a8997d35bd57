"""torch.compile in its backends eager and aot_eager, fullgraph, recompiles by shape, hooks of the script inside; counters printed.

source: pytorch/pytorch#146565
meta: {"limit": 120}
"""
import torch
import torch._dynamo as dynamo
from dynamo_count import counting
from fcw import grads, mlp, rng, say, seed, sha, watch, weights

seed(44)
for backend in ("eager", "aot_eager"):
    dynamo.reset()
    graphs = []
    model = mlp()
    model[2].register_forward_hook(lambda m, i, o: o * 1.25)
    fast = torch.compile(model, backend=counting(backend, graphs), fullgraph=True)
    watch(fast)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    for step, n in enumerate((4, 4, 6, 7, 4)):
        loss = fast(torch.randn(n, 8)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        say(backend, loss.item().hex(), sha(grads(model)))
    say(type(fast).__name__, list(fast.state_dict())[:2], sha(weights(model)))
say(rng())
