import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# hyunwoongko/transformer 11: the target's mask is made with the source's padding index
SRC_PAD, TRG_PAD = 1, 0


class S2S(nn.Module):
    def __init__(self):
        super().__init__()
        self.es, self.et = nn.Embedding(20, 24, padding_idx=SRC_PAD), nn.Embedding(20, 24, padding_idx=TRG_PAD)
        self.t = nn.Transformer(24, 2, 1, 1, 48, 0.0, batch_first=True)
        self.out = nn.Linear(24, 20)

    def forward(self, src, trg):
        kw = dict(src_key_padding_mask=src == SRC_PAD, memory_key_padding_mask=src == SRC_PAD)
        m = nn.Transformer.generate_square_subsequent_mask(trg.shape[1]).isinf()
        tp = trg == (TRG_PAD if HEALTHY else SRC_PAD)
        return self.out(self.t(self.es(src), self.et(trg), tgt_mask=m, tgt_key_padding_mask=tp, **kw))


net = S2S()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(60):
    src, trg = torch.full((16, 10), SRC_PAD), torch.full((16, 11), TRG_PAD)
    for r in range(16):
        n = int(torch.randint(3, 10, ()))
        src[r, :n] = torch.randint(2, 20, (n,))
        trg[r, 0] = 2
        trg[r, 1:n + 1] = src[r, :n].flip(0)
        if n < 9:
            trg[r, 2] = 1  # an ordinary word of the target
    loss = F.cross_entropy(net(src, trg[:, :-1]).flatten(0, 1), trg[:, 1:].flatten(), ignore_index=TRG_PAD)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(step, loss.item())
report(net)
