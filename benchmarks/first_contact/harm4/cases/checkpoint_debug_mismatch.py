"""Activation checkpointing: set_checkpoint_debug_enabled with a mismatch (CheckpointError and its list of operations), early stop off and on (how many operations are recomputed), determinism_check none, checkpoint_sequential without rng."""
# PRELUDE
import torch.utils.checkpoint as cp

count = [0]


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        x = self.a(x).tanh()
        count[0] += 1
        x = F.dropout(self.b(x), 0.1)
        count[0] += 1
        return x * 1.0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList(Counted() for _ in range(3)), nn.Linear(8, 4)

    def forward(self, x):
        for b in self.blocks:
            x = cp.checkpoint(b, x, use_reentrant=False, determinism_check="none" if b is self.blocks[1] else "default")
        return self.head(x)


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for early in (True, False, True):
    with cp.set_checkpoint_early_stop(early):
        print(early, train(m, opt, 2), count)
seq = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.ReLU()) for _ in range(4)], nn.Linear(8, 4))
W(seq)
o2 = torch.optim.SGD(seq.parameters(), 0.05)
for s in range(3):
    x, y = batch(s)
    o2.zero_grad()
    F.mse_loss(cp.checkpoint_sequential(seq, 2, x, use_reentrant=False, preserve_rng_state=s > 0), y).backward()
    o2.step()
print(M(seq), R())
flip = [0]


class Changes(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        flip[0] += 1
        x = x.sin() if flip[0] % 2 else x.cos().sin()
        return self.fc(x)


c = Changes()
W(c)
for debug in (False, True):
    try:
        with cp.set_checkpoint_debug_enabled(debug):
            x = torch.randn(6, 8, requires_grad=True)
            cp.checkpoint(c, x, use_reentrant=False, early_stop=False).sum().backward()
    except cp.CheckpointError as e:
        lines = str(e).splitlines()
        print(debug, type(e).__name__, lines[0][:90], len([l for l in lines if "= torch.ops" in l]))
print(flip, count, M(m), M(c), R())
