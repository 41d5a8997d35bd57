"""state_dict pre- and post-hooks, load_state_dict hooks that rewrite keys, extra state; checkpoints reloaded in mid-run.

source: microsoft/nni PR 4764
"""
import torch
from torch import nn
from fcw import mlp, rng, say, seed, sha, train, watch, weights

seed(27)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.count = mlp(), 0
        self.register_buffer("mean", torch.zeros(4), persistent=False)

    def forward(self, x):
        self.count += 1
        out = self.body(x)
        self.mean = self.mean * 0.9 + out.detach().mean(0) * 0.1
        return out - self.mean

    def get_extra_state(self):
        return {"count": self.count}

    def set_extra_state(self, s):
        self.count = s["count"] * 10


net = Net()
log = []
net.register_state_dict_pre_hook(lambda m, prefix, keep: log.append("pre" + prefix))
net.register_state_dict_post_hook(lambda m, d, prefix, meta: d.__setitem__(prefix + "note", torch.tensor([m.count])))
net.register_load_state_dict_pre_hook(lambda m, d, prefix, *a: log.append(str(d.pop(prefix + "note", None))))
net.register_load_state_dict_post_hook(lambda m, keys: log.append(str(keys)))
watch(net)
opt = torch.optim.Adam(net.parameters(), 1e-2)
opt.register_state_dict_post_hook(lambda o, d: log.append(sorted(d)))
opt.register_step_pre_hook(lambda o, a, k: log.append("step"))
opt.register_step_post_hook(lambda o, a, k: log.append("stepped"))
for part in range(3):
    said = train(net, opt, 2)
    torch.save({"n": net.state_dict(), "o": opt.state_dict()}, f"{part}.pt")
    back = torch.load(f"{part}.pt")
    net.load_state_dict(back["n"])
    opt.load_state_dict(back["o"])
    say(said, net.count, list(net.state_dict()), log)
    log.clear()
say(sha([v for v in net.state_dict().values() if isinstance(v, torch.Tensor)]), rng())
