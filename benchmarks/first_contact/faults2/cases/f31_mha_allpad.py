"""pytorch/pytorch#41508: nn.MultiheadAttention, a sequence whose keys are all padding
TRUTH op=aten._softmax|aten.softmax|aten.baddbmm reason=row|inf - inf lib=torch/nn/functional.py pattern=softmax(attn_output_weights"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.e = nn.Embedding(30, 16, padding_idx=0); self.a = nn.MultiheadAttention(16, 2, batch_first=True); self.o = nn.Linear(16, 30)
    def forward(self, ids):
        h = self.e(ids); y, w = self.a(h, h, h, key_padding_mask=ids == 0); return self.o(y), w
net = Net(); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(4):
    ids = torch.randint(1, 30, (4, 8)); ids[0, 5:] = 0
    if step == 2 and not CURED: ids[3] = 0
    out, w = net(ids); loss = F.cross_entropy(out.flatten(0, 1), ids.flatten(), ignore_index=0); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
