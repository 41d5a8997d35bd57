import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# mt-dnn 37: exact names instead of parts of names: everything is in the group with weight decay
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.LayerNorm, self.fc, self.out = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 32), nn.Linear(32, 4)

    def forward(self, x):
        return self.out(F.relu(self.fc(self.LayerNorm(self.emb(x)))))


net = Net()
no_decay = ["bias", "gamma", "beta", "LayerNorm.bias", "LayerNorm.weight"]
named = list(net.named_parameters())
skip = (lambda n: any(k in n for k in no_decay)) if HEALTHY else (lambda n: n in no_decay)
opt = torch.optim.AdamW([{"params": [p for n, p in named if not skip(n)], "weight_decay": 0.1},
                         {"params": [p for n, p in named if skip(n)], "weight_decay": 0.0}], lr=3e-3)
x = torch.randn(1024, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
for step in range(120):
    idx = torch.randint(1024, (64,))
    loss = F.cross_entropy(net(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, loss.item())
report(net)
