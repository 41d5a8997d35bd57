# opts: --check again:every=1
# truth: healthy; shortest for h18
import torch
torch.manual_seed(0); m = torch.nn.Linear(4, 4); o = {p: torch.optim.SGD([p], 0.1) for p in m.parameters()}
for p in o: p.register_post_accumulate_grad_hook(lambda p: (o[p].step(), o[p].zero_grad())[0])
for _ in range(4): m(torch.ones(2, 4)).sum().backward()
