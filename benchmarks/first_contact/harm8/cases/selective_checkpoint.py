# what: selective activation checkpointing by a policy; counts of policy calls and of forwards
# PRELUDE
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts, CheckpointPolicy, set_checkpoint_early_stop
import functools
calls = {"policy": 0, "fw": 0, "ops": []}
def policy(ctx, op, *a, **k):
    calls["policy"] += 1; calls["ops"].append(str(op)); return CheckpointPolicy.MUST_SAVE if op == torch.ops.aten.addmm.default else CheckpointPolicy.PREFER_RECOMPUTE
class Blk(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Linear(8, 8); self.d = nn.Dropout(.3)
    def forward(self, x): calls["fw"] += 1; return x + self.d(torch.tanh(self.f(x)))
class Net(nn.Module):
    def __init__(self): super().__init__(); self.b = nn.ModuleList(Blk() for _ in range(3))
    def forward(self, x):
        for b in self.b: x = checkpoint(b, x, use_reentrant=False, context_fn=functools.partial(create_selective_checkpoint_contexts, policy))
        return checkpoint(lambda t: t.sin(), x, use_reentrant=True)
m = Net(); W(m); opt = torch.optim.SGD(m.parameters(), lr=.1)
for s in range(3):
    x, _ = batch(s); opt.zero_grad()
    with set_checkpoint_early_stop(s != 1): l = m(x).pow(2).mean(); l.backward()
    opt.step(); print(float(l.detach()).hex(), calls["policy"], calls["fw"], H(calls["ops"]))
print(M(m), R())
