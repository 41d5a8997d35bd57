from tiny import *
# https://github.com/NVIDIA/Megatron-LM/issues/1464's kind (wrong positions under sequence/context parallel): each micro-batch is half the
# sequence's rows... here a rank's second half starts at position 0 of an MLP-only model
init()
class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos, self.mlp, self.head = nn.Embedding(V, D), nn.Embedding(T, D), MLP(), nn.Linear(D, V)
    def forward(self, ids, positions):
        return self.head(self.mlp(self.tok(ids) + self.pos(positions)))
model = Bag()
if world > 1:
    model = nn.parallel.DistributedDataParallel(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches():
    x, y = x.chunk(world, 1)[rank], y.chunk(world, 1)[rank]
    positions = torch.arange(x.shape[1]).expand_as(x)  # should be + rank * x.shape[1]
    ce(model(x, positions), y).backward()
    opt.step(); opt.zero_grad()
