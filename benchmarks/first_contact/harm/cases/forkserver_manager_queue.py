"""forkserver children, a Manager's dict, tensors through queues with file_system sharing, a SimpleQueue of gradients; /dev/shm left as it was.

source: pytorch/pytorch#3966 (forkserver), PyTorch docs multiprocessing sharing strategies
meta: {"limit": 120}
"""
import glob
import torch
import torch.multiprocessing as mp
from fcw import grads, mlp, say, seed, sha, watch, weights


def work(q, back, d, i):
    model = mlp()
    watch(model)
    while (state := q.get()) is not None:
        model.load_state_dict(state)
        model.zero_grad()
        seed(i)
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        back.put([g.clone() for g in grads(model)])
        d[i] = loss.item().hex()
        del state


if __name__ == "__main__":
    before = set(glob.glob("/dev/shm/torch_*"))
    mp.set_sharing_strategy("file_system")
    seed(319)
    ctx = mp.get_context("forkserver")
    model = mlp()
    watch(model)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    with ctx.Manager() as man:
        d = man.dict()
        q, back = ctx.Queue(), ctx.Queue()
        kid = ctx.Process(target=work, args=(q, back, d, 0))
        kid.start()
        for step in range(3):
            q.put({k: v.clone() for k, v in model.state_dict().items()})
            for p, g in zip(model.parameters(), back.get(timeout=100)):
                p.grad = g.clone()
            opt.step()
            say(d[0], sha(weights(model)))
        q.put(None)
        kid.join()
        say(kid.exitcode, dict(d))
