"""Hogwild with one spawned worker on a shared model: is_shared, results after join, exit code.

Source: https://github.com/pytorch/examples (mnist_hogwild) and https://github.com/pytorch/pytorch/issues/2245
"""
# PRELUDE
import torch.multiprocessing as mp
def work(rank, m, q):
    torch.set_num_threads(1); opt = torch.optim.SGD(m.parameters(), 0.1); q.put((rank, train(m, opt, 5), torch.initial_seed()))
if __name__ == "__main__":
    m = net(); m.share_memory(); print(all(p.is_shared() for p in m.parameters())); ctx = mp.get_context("spawn"); q = ctx.Queue()
    p = ctx.Process(target=work, args=(0, m, q)); p.start(); print(q.get()); p.join(); print(p.exitcode, M(m) == M(net()), H(dict(m.state_dict())), train(m, torch.optim.SGD(m.parameters(), 0.1), 2))
