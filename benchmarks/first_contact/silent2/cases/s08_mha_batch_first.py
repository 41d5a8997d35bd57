"""nn.MultiheadAttention without batch_first=True gets (batch, tokens, d): each token attends over the batch, not over its sequence.
Source: https://github.com/om-ai-lab/OmDet/issues/19 (also aipixel/AEMatter issue 3)
Truth: a sample's output depends on the other samples of the batch; the task needs the sequence.
Could a tool know: partly. A change of one sample changes others' outputs though no batch norm is there, or the attention's sizes follow the batch.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(12, 32), nn.Parameter(0.1 * torch.randn(1, 10, 32))
        self.attn = nn.MultiheadAttention(32, 4, batch_first=HEALTHY)
        self.norm, self.ff, self.head = nn.LayerNorm(32), nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)), nn.Linear(32, 12)
    def forward(self, t):
        x = self.emb(t) + self.pos; x = x + self.attn(x, x, x, need_weights=False)[0]
        return self.head(x + self.ff(self.norm(x)))

net = Net(); opt = torch.optim.Adam(net.parameters(), 3e-3)
for step in range(200):
    t = torch.randint(0, 12, (24, 10)); y = t.flip(1)     # reverse the sequence
    loss = F.cross_entropy(net(t).reshape(-1, 12), y.reshape(-1))
    opt.zero_grad(); loss.backward(); opt.step()
with torch.no_grad():
    o = net(t); t2 = t.clone(); t2[1:] = torch.randint(0, 12, (23, 10)); d = (net(t2)[0] - o[0]).abs().max()
print(f"TRUTH sample 0 changes by {d:.4f} with the others; loss {loss:.3f}")
