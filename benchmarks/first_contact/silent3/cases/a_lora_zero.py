"""A hand-written LoRA whose A and B both start at zero: the gradient of either is a product with the other, so it is 0 for ever.
Source: https://github.com/circle-hit/SAPT/issues/11
Truth: A and B are exactly 0 at the end; only the classifier learned.
Could a tool know: yes: the gradients of all adapters are exactly zero in all steps.
"""
import math
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class LoRALinear(nn.Module):
    def __init__(self, base, r=4):
        super().__init__()
        self.base = base
        for p in base.parameters():
            p.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.zeros(base.in_features, r))
        self.lora_B = nn.Parameter(torch.zeros(r, base.out_features))
        if HEALTHY:
            nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x):
        return self.base(x) + x @ self.lora_A @ self.lora_B * 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(50, 32).requires_grad_(False)
        self.q, self.v = LoRALinear(nn.Linear(32, 32)), LoRALinear(nn.Linear(32, 32))
        self.k = nn.Linear(32, 32).requires_grad_(False)
        self.cls = nn.Linear(32, 3)

    def forward(self, ids):
        h = self.emb(ids)
        a = torch.softmax(self.q(h) @ self.k(h).transpose(1, 2) / 32**0.5, -1)
        return self.cls((a @ self.v(h)).mean(1))


model = Net()
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
for step in range(150):
    ids = torch.randint(0, 50, (32, 10))
    y = (ids % 3).sum(1) % 3
    loss = nn.functional.cross_entropy(model(ids), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.4f} |A| {model.q.lora_A.norm():.4f} |B| {model.q.lora_B.norm():.4f}")
