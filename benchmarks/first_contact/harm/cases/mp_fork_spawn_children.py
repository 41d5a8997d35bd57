"""Children by fork and by spawn that train, send tensors through queues and pipes, return by exit codes; what the parent sees.

source: pytorch/pytorch#50669, pytorch/pytorch#26447, pytorch/pytorch#17225
meta: {"limit": 120}
"""
import sys
import torch
import torch.multiprocessing as mp
from fcw import mlp, rng, say, seed, sha, train, watch, weights


def work(i, q, start):
    seed(i)
    model = mlp()
    watch(model)
    said = train(model, torch.optim.SGD(model.parameters(), 0.1), 3)
    q.put((i, said, sha(weights(model)), rng(), [w.clone() for w in weights(model)][1].tolist()))
    q.close()
    q.join_thread()
    if i == 1:
        sys.exit(4)
    if i == 2:
        sys.exit("text")


if __name__ == "__main__":
    seed(70)
    for method in ("fork", "spawn"):
        ctx = mp.get_context(method)
        q = ctx.Queue()
        kids = [ctx.Process(target=work, args=(i, q, method), name=f"kid-{i}") for i in range(3)]
        for k in kids:
            k.start()
        got = sorted(q.get(timeout=100) for _ in kids)
        for k in kids:
            k.join()
        say(method, got, [(k.name, k.exitcode) for k in kids])
    say(rng(), mp.active_children())
