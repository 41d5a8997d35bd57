"""Selective activation checkpointing: a policy decides per operation what is saved (its dispatch modes run in forward and in recomputation)."""
# PRELUDE
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts, CheckpointPolicy
seed(31)
seen = []


def policy(ctx, op, *a, **k):
    seen.append((ctx.is_recompute, str(op)))
    return CheckpointPolicy.MUST_SAVE if op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default) else CheckpointPolicy.PREFER_RECOMPUTE


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.d = nn.Linear(16, 64), nn.Linear(64, 16), nn.Dropout(0.2)

    def forward(self, x):
        return x + self.d(self.b(F.gelu(self.a(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bl, self.h = nn.ModuleList(Block() for _ in range(3)), nn.Linear(16, 2)

    def forward(self, x):
        for b in self.bl:
            x = checkpoint(b, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy))
        return self.h(x)


net = Net()
watch(net)
opt = torch.optim.AdamW(net.parameters(), 1e-2)
for step in range(10):
    loss = F.cross_entropy(net(torch.randn(8, 16)), torch.randint(0, 2, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, dig(loss), len(seen))
print(dig(seen))
end(net, opt)
