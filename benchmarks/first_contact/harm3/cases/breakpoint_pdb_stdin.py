"""breakpoint() in the training loop with pdb's commands from stdin (p, where's own frames, next, a post-mortem after a caught exception, continue): pdb's output."""
# PRELUDE
import pdb

m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(3):
    x, t = batch(s)
    opt.zero_grad()
    loss = F.mse_loss(m(x), t)
    if s == 1:
        breakpoint()
    loss.backward()
    opt.step()


def fail(x):
    raise ValueError("planned")


def outer(name):
    fail([1, 2, 3])


try:
    outer("the name")
except ValueError as e:
    tb = e.__traceback__
    pdb.post_mortem(tb)
print(M(m))
