import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://foreai.co/blog/nans-out-of-nowhere-the-trick-that-saved-my-training-run
class LM(nn.Module):
    def __init__(self):
        super().__init__(); self.emb = nn.Embedding(20, 16); self.rnn = nn.LSTM(16, 16, batch_first=True); self.head = nn.Linear(16, 20)
    def forward(self, ids, eos_ok):
        h, _ = self.rnn(self.emb(ids)); logits = self.head(h)
        p = logits.softmax(-1)[..., 0]
        pen = -torch.log(1 - p) * (~eos_ok)
        return F.cross_entropy(logits.flatten(0, 1), ids.flatten()) + pen.mean()
model = LM()
with torch.no_grad(): model.head.bias[0] = 12.
model = model.bfloat16(); opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(8):
    ids = torch.randint(0, 20, (4, 6)); ok = torch.rand(4, 6) < 0.5
    loss = model(ids, ok); opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
