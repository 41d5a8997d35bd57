"""Pipeline schedule in one process: a stage's output is sent and its data replaced by one element; backward goes through the C++ engine."""
# PRELUDE
from torch.autograd.variable import Variable
seed(2)


def deallocate(t):
    t.data = torch.empty((1,), dtype=t.dtype)


def custom_backward(out, grad):
    if grad is None:
        grad = torch.ones_like(out)
    Variable._execution_engine.run_backward(tensors=(out,), grad_tensors=(grad,), keep_graph=False, create_graph=False, inputs=tuple(),
                                            allow_unreachable=True, accumulate_grad=True)


first = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32))
last = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 3))
watch(nn.ModuleList([first, last]) if False else first)
watch(last)
opts = [torch.optim.AdamW(m.parameters(), 1e-2) for m in (first, last)]
for step in range(12):
    for o in opts:
        o.zero_grad()
    kept = []
    for micro in range(3):
        x = torch.randn(16, 8)
        out = first(x) + 0
        sent = out.detach().clone().requires_grad_()
        deallocate(out)
        kept.append((out, sent, torch.randint(0, 3, (16,))))
    total = 0.0
    for out, sent, y in kept:
        loss = F.cross_entropy(last(sent), y) / 3
        custom_backward(loss, None)
        total += loss.item()
        custom_backward(out, sent.grad)
    for o in opts:
        o.step()
    print(step, repr(total))
end(first, opts[0])
end(last, opts[1])
