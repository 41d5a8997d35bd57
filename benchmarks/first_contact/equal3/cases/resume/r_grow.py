"""Unfreezes a backbone at step 4 (add_param_group), saves in a thread, SAM's two passes, tied weights, queue as a buffer. --lose group | queue | swap | sam"""
import copy, hashlib, os, sys, threading

import torch
from torch import nn

lose = sys.argv[sys.argv.index("--lose") + 1] if "--lose" in sys.argv else ""
END = int(os.environ.get("END", "100"))
torch.manual_seed(8)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 10)
        self.back = nn.GRU(10, 10, batch_first=True)
        self.out = nn.Linear(10, 20, bias=False)
        self.out.weight = self.emb.weight
        self.proj = nn.Linear(10, 10)
        self.register_buffer("queue", torch.zeros(16, 10), persistent=lose != "queue")
        self.register_buffer("at", torch.zeros((), dtype=torch.long), persistent=lose != "queue")

    def forward(self, t):
        h = self.proj(self.back(self.emb(t))[0])
        near = (h @ self.queue.clone().T).logsumexp(-1).mean()
        if self.training and torch.is_grad_enabled():
            i = int(self.at) % 16
            self.queue[i] = h.detach()[:, -1].mean(0)
            self.at += 1
        return self.out(h), near


net = Net()
for p in net.back.parameters():
    p.requires_grad_(False)
head = [net.emb.weight, *net.proj.parameters()]
opt = torch.optim.SGD(head, lr=0.1, momentum=0.9, nesterov=True)
n, saving = 0, None


def unfreeze():
    for p in net.back.parameters():
        p.requires_grad_(True)
    opt.add_param_group({"params": list(net.back.parameters()), "lr": 0.03})


if os.path.exists("grow.pth"):
    c = torch.load("grow.pth")
    n = c["n"]
    if n >= 4:
        unfreeze()
    net.load_state_dict(c["net"])
    if lose == "group":  # keeps the state of the first group alone
        o = c["opt"]
        k = len(o["param_groups"][0]["params"])
        o["state"] = {i: s for i, s in o["state"].items() if i < k}
        opt.load_state_dict(o)
    elif lose == "swap":  # the momentum of two tensors of one shape is exchanged
        o = c["opt"]
        o["state"][3], o["state"][4] = o["state"][4], o["state"][3]
        opt.load_state_dict(o)
    else:
        opt.load_state_dict(c["opt"])
while n < END:
    if n == 4:
        unfreeze()
    t = torch.randint(0, 20, (6, 9), generator=torch.Generator().manual_seed(n))

    def value():
        y, near = net(t[:, :-1])
        return nn.functional.cross_entropy(y.flatten(0, 1), t[:, 1:].flatten()) + 0.01 * near

    loss = value()
    loss.backward()
    with torch.no_grad():
        moved = [(p, 0.05 * p.grad / (p.grad.norm() + 1e-9)) for p in net.parameters() if p.grad is not None]
        for p, d in moved:
            p.add_(d)
    opt.zero_grad()
    value().backward()
    with torch.no_grad():
        for p, d in moved:
            p.sub_(d)
    opt.step()
    opt.zero_grad()
    n += 1
    sha = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:10]
    print(f"r0 step {n} loss {loss.item():.7f} {sha}", flush=True)
    if n % 6 == 0:
        if saving:
            saving.join()
        held = copy.deepcopy({"net": net.state_dict(), "opt": opt.state_dict(), "n": n})
        saving = threading.Thread(target=torch.save, args=(held, "grow.pth"))
        saving.start()
        saving.join() if END < 100 or True else None
