import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/allenai/allennlp/issues/890
class SelfAttn(nn.Module):
    def __init__(self, d=32):
        super().__init__(); self.q = nn.Linear(d, d); self.k = nn.Linear(d, d); self.v = nn.Linear(d, d)
    def forward(self, x, mask):
        s = self.q(x) @ self.k(x).transpose(1, 2) / 32 ** 0.5
        bias = (1.0 - mask[:, None, :].to(x.dtype)) * -1e9
        p = torch.softmax(s + bias, dim=-1)
        return p @ self.v(x)
class Enc(nn.Module):
    def __init__(self):
        super().__init__(); self.emb = nn.Embedding(40, 32, padding_idx=0); self.attn = SelfAttn(); self.out = nn.Linear(32, 2)
    def forward(self, ids):
        m = ids != 0
        x = self.emb(ids); x = x + self.attn(x, m)
        return self.out(x.mean(1))
model = Enc().bfloat16()
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(8):
    ids = torch.randint(1, 40, (6, 9)); y = torch.randint(0, 2, (6,))
    ids[:, 6:] = 0
    if step == 3: ids[2] = 0
    loss = F.cross_entropy(model(ids).float(), y)
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
