"""huggingface/transformers#17306: finfo(float16).min as mask plus a negative bias is -inf, a fully masked row's softmax is nan
TRUTH op=aten.add reason=overflow of the dtype"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class Attn(nn.Module):
    def __init__(self, d=32, h=2):
        super().__init__(); self.h, self.qkv, self.o = h, nn.Linear(d, 3 * d), nn.Linear(d, d)
    def forward(self, x, mask):
        B, T, D = x.shape; q, k, v = self.qkv(x).view(B, T, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        s = q @ k.transpose(-1, -2) * (D // self.h) ** -0.5
        i = torch.arange(T); bias = (i[None] - T).to(x.dtype) * 32
        if CURED: mask = mask / 2
        s = s + bias
        s = s + mask  # FAULT
        return self.o((s.softmax(-1) @ v).transpose(1, 2).reshape(B, T, D))
class LM(nn.Module):
    def __init__(self):
        super().__init__(); self.e, self.a, self.n, self.u = nn.Embedding(40, 32), Attn(), nn.LayerNorm(32), nn.Linear(32, 40)
    def forward(self, ids, pad):
        T = ids.size(1); m = torch.zeros(ids.size(0), 1, T, T, dtype=self.u.weight.dtype)
        m = m.masked_fill(~torch.ones(T, T).tril().bool() | ~pad[:, None, None, :], torch.finfo(m.dtype).min)
        h = self.e(ids); return self.u(self.n(h + self.a(h, m)))
net = LM().half(); opt = torch.optim.SGD(net.parameters(), 0.01)
for step in range(4):
    ids = torch.randint(0, 40, (2, 10)); pad = torch.ones(2, 10).bool()
    if step == 2: pad[1, :2] = False     # left padding
    out = net(ids, pad); loss = F.cross_entropy(out.float().flatten(0, 1), ids.flatten()); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
