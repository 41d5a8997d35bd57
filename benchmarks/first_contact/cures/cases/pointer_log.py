import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://huggingface.co/datasets/nvidia/Nemotron-CC-Math-v1 ("About Log and Softmax": copy mechanism)
class Pointer(nn.Module):
    def __init__(self):
        super().__init__(); self.emb = nn.Embedding(40, 16); self.rnn = nn.GRU(16, 16, batch_first=True); self.gen = nn.Linear(16, 40); self.sw = nn.Linear(16, 1)
    def forward(self, src, tgt):
        h, _ = self.rnn(self.emb(src))
        att = torch.softmax((h @ h.transpose(1, 2)), -1)
        pg = torch.sigmoid(self.sw(h))
        vocab = torch.softmax(self.gen(h), -1)
        copy = torch.zeros_like(vocab).scatter_add(2, src[:, None, :].expand(-1, src.shape[1], -1), att)
        p = pg * vocab + (1 - pg) * copy
        return F.nll_loss(torch.log(p).flatten(0, 1), tgt.flatten())
model = Pointer()
with torch.no_grad(): model.gen.bias[39] = -120.; model.gen.bias[38] = -60.
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(10):
    src = torch.randint(0, 38, (4, 7)); tgt = torch.randint(0, 38, (4, 7))
    if step == 5: tgt[0, 0] = 39
    loss = model(src, tgt); opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
