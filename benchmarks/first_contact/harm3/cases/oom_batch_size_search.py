"""accelerate's find_executable_batch_size: the training function fails with 'out of memory' errors and is started anew with half the batch; garbage of the failed tries is freed (weakrefs); the last one trains."""
# PRELUDE
import gc
import weakref

from accelerate.utils import find_executable_batch_size

dead, tried = [], []


@find_executable_batch_size(starting_batch_size=9)
def go(batch_size):
    gc.collect()
    tried.append((batch_size, [r() is None for r in dead]))
    m = net(1)
    W(m)
    dead.append(weakref.ref(m))
    opt = torch.optim.SGD(m.parameters(), 0.05)

    class Big(nn.Module):
        def forward(self, x):
            if len(x) > 5:
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes.")
            return x

    m.append(Big())
    for s in range(3):
        x, t = batch(s, n=batch_size)
        opt.zero_grad()
        F.mse_loss(m(x), t).backward()
        opt.step()
    return M(m)


print(go(), tried)
