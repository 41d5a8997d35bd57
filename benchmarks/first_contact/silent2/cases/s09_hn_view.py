"""BiLSTM text classifier: h_n (2, B, H) becomes (B, 2H) by view, which mixes the samples of the batch.
Source: https://github.com/graykode/nlp-tutorial/issues/38 (same in facebookresearch/fairseq issue 239)
Truth: the logits of sample 0 depend on other samples; accuracy.
Could a tool know: partly. Without batch norm a sample's loss has a gradient in other samples' inputs.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)

class BiLSTM(nn.Module):
    def __init__(self):
        super().__init__(); self.e = nn.Embedding(30, 16); self.r = nn.LSTM(16, 24, bidirectional=True, batch_first=True); self.o = nn.Linear(48, 3)
    def forward(self, t):
        _, (h, _) = self.r(self.e(t))
        h = h.transpose(0, 1).reshape(len(t), -1) if HEALTHY else h.view(len(t), -1)
        return self.o(h)

net = BiLSTM(); opt = torch.optim.Adam(net.parameters(), 5e-3)
for step in range(150):
    t = torch.randint(0, 30, (32, 12)); y = t[:, 0] % 3
    loss = F.cross_entropy(net(t), y); opt.zero_grad(); loss.backward(); opt.step()
with torch.no_grad():
    o = net(t); u = t.clone(); u[1:] = torch.randint(0, 30, (31, 12)); d = (net(u)[0] - o[0]).abs().max()
print(f"TRUTH sample 0 changes by {d:.3f} with the others; accuracy {(o.argmax(1) == y).float().mean():.2f}")
