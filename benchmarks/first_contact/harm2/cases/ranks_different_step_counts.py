"""Local training without any communication in the loop: rank 0 does 3 steps, rank 1 does 9, average at the end (local SGD).

Source: https://github.com/pytorch/pytorch docs (post-local SGD); arXiv:1805.09767
"""
# PRELUDE
import torch.distributed as dist
dist.init_process_group("gloo"); r = dist.get_rank(); m = net(0); opt = torch.optim.SGD(m.parameters(), 0.1)
for e in range(2):
    a = train(m, opt, 3 + 6 * r, 10 * r)
    for p in m.parameters(): dist.all_reduce(p.data); p.data /= 2
open(f"r{r}.txt", "w").write(a + M(m)); dist.destroy_process_group()
