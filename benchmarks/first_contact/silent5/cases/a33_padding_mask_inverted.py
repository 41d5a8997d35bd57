import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# mlwithme/TransformerTranslation 6, jadore801120 148: src_key_padding_mask is true where tokens are
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 24, padding_idx=0)
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(24, 2, 48, 0.0, batch_first=True), 1, enable_nested_tensor=False)
        self.fc = nn.Linear(24, 2)

    def forward(self, t, attention_mask):
        keep = attention_mask.bool()
        h = self.enc(self.emb(t), src_key_padding_mask=~keep if HEALTHY else keep)
        h = h * attention_mask[..., None]
        return self.fc(h.sum(1) / attention_mask.sum(1, keepdim=True))


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(80):
    n = torch.randint(3, 11, (32,))
    mask = (torch.arange(12)[None] < n[:, None]).long()
    t = torch.randint(1, 20, (32, 12)) * mask
    y = ((t == 5).sum(1) > 0).long()
    loss = F.cross_entropy(net(t, mask), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(step, loss.item())
report(net)
