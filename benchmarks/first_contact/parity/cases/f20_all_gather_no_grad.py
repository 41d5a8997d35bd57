from tiny import *
# https://github.com/mlfoundations/open_clip/issues/616, https://github.com/huggingface/accelerate/issues/1154: contrastive loss over
# dist.all_gather, which no gradient passes
init()
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)), nn.Linear(12, 16)
    def forward(self, x, z):
        return F.normalize(self.a(x), dim=-1), F.normalize(self.b(z), dim=-1)
def gather(t):
    if world == 1: return t
    out = [torch.empty_like(t) for _ in range(world)]
    dist.all_gather(out, t.detach()); out[rank] = t
    return torch.cat(out)
model = Two()
if world > 1:
    model = nn.parallel.DistributedDataParallel(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
g = torch.Generator().manual_seed(3)
for _ in range(4):
    x, z = mine(torch.randn(16, 16, generator=g), torch.randn(16, 12, generator=g))
    a, b = map(gather, model(x, z))
    logits = a @ b.T / 0.1
    y = torch.arange(len(logits))
    ((F.cross_entropy(logits, y) + F.cross_entropy(logits.T, y)) / 2).backward()
    opt.step(); opt.zero_grad()
