import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# transformers 27517: labels are the inputs themselves and nothing shifts them: the decoder learns to copy
class Dec(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(30, 32), nn.Embedding(16, 32)
        self.block = nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True)
        self.head = nn.Linear(32, 30)

    def forward(self, input_ids):
        x = self.emb(input_ids) + self.pos(torch.arange(input_ids.shape[1]))
        m = nn.Transformer.generate_square_subsequent_mask(input_ids.shape[1])
        return self.head(self.block(x, src_mask=m))


net = Dec()
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
table = torch.randperm(30)
for step in range(120):
    tok = torch.randint(30, (16, 1))
    seq = [tok]
    for _ in range(15):
        tok = torch.where(torch.rand(16, 1) < 0.7, table[tok], torch.randint(30, (16, 1)))
        seq.append(tok)
    ids = torch.cat(seq, 1)
    labels = ids.clone()
    logits = net(ids)
    if HEALTHY:
        logits, labels = logits[:, :-1], labels[:, 1:]
    loss = F.cross_entropy(logits.reshape(-1, 30), labels.reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, loss.item())
report(net)
