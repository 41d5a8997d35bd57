import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/openai/CLIP/pull/530
class CLIP(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(12, 8); self.b = nn.Linear(12, 8); self.logit_scale = nn.Parameter(torch.tensor(10.9))
    def forward(self, x, y):
        a, b = F.normalize(self.a(x), dim=1), F.normalize(self.b(y), dim=1)
        logits = self.logit_scale.exp() * a @ b.T
        t = torch.arange(len(x))
        return (F.cross_entropy(logits, t) + F.cross_entropy(logits.T, t)) / 2
model = CLIP().half()
opt = torch.optim.SGD([{"params": [model.logit_scale], "lr": 1e-5}, {"params": [p for n, p in model.named_parameters() if n != "logit_scale"], "lr": 1e-7}])
import numscope
numscope.high_precision(model)
for step in range(10):
    x = torch.randn(6, 12).half(); y = x.clone()
    with torch.no_grad():
        if step > 2: model.logit_scale += 0.05
    loss = model(x, y); opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
