"""TORCH_DISTRIBUTED_DEBUG=DETAIL: collectives are checked against each other; mismatched shapes, dtypes and operations raise with fingerprints on every rank, in the middle of training and inside a module's forward; the ranks go on after each caught error; texts without addresses."""
# PRELUDE
import re
import torch.distributed as dist

dist.init_process_group("gloo")
r = dist.get_rank()


def say(*a):
    t = re.sub(r"0x[0-9a-f]{6,}|\d+\.\d+\.\d+\.\d+:?\d*|\[[^\]]*\]:\d+", "*", " ".join(map(str, a)))
    open(f"rank{r}.txt", "a").write(t + "\n")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4)
        self.register_buffer("mean", torch.zeros(8))
        self.wrong = False

    def forward(self, x):
        h = torch.relu(self.a(x))
        with torch.no_grad():
            s = h.mean(0)
            dist.all_reduce(s if not self.wrong or r else s[:5])
            self.mean.lerp_(s / 2, 0.1)
        return self.b(h - self.mean)


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)


def step(s):
    opt.zero_grad()
    loss = F.mse_loss(m(batch(2 * s + r)[0]), batch(s)[1])
    loss.backward()
    for p in m.parameters():
        dist.all_reduce(p.grad)
        p.grad /= 2
    opt.step()
    return loss.item().hex()


for s in range(3):
    say(s, step(s), M(m))
for what in ("shape", "kind", "dtype", "forward"):
    try:
        if what == "shape":
            dist.all_reduce(torch.ones(3 + r))
        elif what == "dtype":
            dist.all_gather([torch.ones(2, dtype=torch.float64 if r else torch.float32) for _ in range(2)], torch.ones(2, dtype=torch.float64 if r else torch.float32))
        elif what == "forward":
            m.wrong = True
            m(batch(1)[0])
        elif r == 0:
            dist.all_reduce(torch.ones(2))
        else:
            dist.broadcast(torch.ones(2), 0)
        say("no error", what)
    except RuntimeError as e:
        say(what, type(e).__name__, "Detected mismatch" in str(e) or str(e)[:80], sorted(set(re.findall(r"OpType=\w+|TensorShape=\[[^\]]*\]|TensorDtypes=\w+", str(e)))))
    m.wrong = False
    t = torch.ones(2) * (r + 1)
    dist.all_reduce(t)
    say(t.tolist(), step(5), M(m))
say(dist.get_debug_level().name, type(dist.group.WORLD).__name__, R())
dist.monitored_barrier()
dist.destroy_process_group()
