"""nn.TransformerEncoder gets src_key_padding_mask = (tokens != PAD): True means 'ignore' there, so it reads the padding and ignores the words.
Source: https://github.com/mlwithme/TransformerTranslation/issues/6 (also detr issue 96, jadore801120 issue 148)
Truth: replacing the words changes what token 0's attention sees? accuracy near chance.
Could a tool know: partly. Most of the masked keys are not the padding id; a tool does not know the id.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.e, self.p = nn.Embedding(20, 32, padding_idx=0), nn.Parameter(0.02 * torch.randn(1, 13, 32)); self.t = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True), 2, enable_nested_tensor=False); self.o = nn.Linear(32, 2)
    def forward(self, x):
        m = (x == 0) if HEALTHY else (x != 0); return self.o(self.t(self.e(x) + self.p, src_key_padding_mask=m)[:, 0])
net = Net(); opt = torch.optim.AdamW(net.parameters(), 2e-3)
for step in range(200):
    x = torch.randint(2, 20, (32, 13)); n = torch.randint(5, 12, (32, 1)); x[torch.arange(13) >= n] = 0; x[:, 0] = 1
    y = ((x == 7) | (x == 8)).any(1).long(); o = net(x); loss = F.cross_entropy(o, y); opt.zero_grad(); loss.backward(); opt.step()
print(f"TRUTH accuracy {(o.argmax(1) == y).float().mean():.2f} loss {loss:.3f}")
