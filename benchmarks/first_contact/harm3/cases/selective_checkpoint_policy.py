"""Selective activation checkpointing (a policy that saves matrix products, counts what it is asked), offloading wrappers of torch's algorithms, early stop off; number of recomputed operations, weights."""
# PRELUDE
import functools

from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, apply_activation_checkpointing, checkpoint_wrapper, offload_wrapper
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts, set_checkpoint_early_stop

asked = {"save": 0, "re": 0}


def policy(ctx, op, *a, **k):
    keep = op in (torch.ops.aten.addmm.default, torch.ops.aten.mm.default)
    asked["save" if keep else "re"] += not ctx.is_recompute
    return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.d, self.n = nn.Linear(8, 8), nn.Dropout(0.2), 0

    def forward(self, x):
        self.n += 1
        return x + self.d(F.gelu(self.l(x)))


torch.manual_seed(1)
bs = [Block() for _ in range(3)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bs, self.o = nn.ModuleList(bs), nn.Linear(8, 4)

    def forward(self, x):
        for b in self.bs:
            x = checkpoint(b, x, use_reentrant=False, context_fn=functools.partial(create_selective_checkpoint_contexts, policy))
        return self.o(x)


m = Net()
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
print(train(m, opt, 4), [b.n for b in bs], asked["save"], M(m))
k = nn.Sequential(Block(), Block(), nn.Linear(8, 4))
apply_activation_checkpointing(k, checkpoint_wrapper_fn=functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT), check_fn=lambda x: isinstance(x, Block))
W(k)
with set_checkpoint_early_stop(False):
    print(train(k, torch.optim.SGD(k.parameters(), 0.05), 4), k[0].n if hasattr(k[0], "n") else None, [n for n, _ in k.named_modules()][:4], sorted(k.state_dict()), M(k), R())
