import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# causal-transformer-decoder 1, transformers 48745: no causal mask: each position sees its own label
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(24, 32), nn.Embedding(16, 32)
        self.block = nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True)
        self.head = nn.Linear(32, 24)

    def forward(self, t):
        x = self.emb(t) + self.pos(torch.arange(t.shape[1]))
        m = nn.Transformer.generate_square_subsequent_mask(t.shape[1]) if HEALTHY else None
        return self.head(self.block(x, src_mask=m))


net = LM()
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
for step in range(120):
    t = torch.randint(24, (16, 17))
    t[:, 2::3] = t[:, 1:-1:3][:, : t[:, 2::3].shape[1]]
    loss = F.cross_entropy(net(t[:, :-1]).flatten(0, 1), t[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, loss.item())
report(net)
