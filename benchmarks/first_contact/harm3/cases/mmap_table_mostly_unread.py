"""A frozen embedding table on a memory-mapped sparse file of 2.5 GB, of which the run reads a few rows: still sparse on disk afterwards (blocks), few pages resident."""
# PRELUDE
import resource

rows, dim = 10_000_000, 64
with open("table.bin", "wb") as f:
    f.truncate(rows * dim * 4)
t = torch.from_file("table.bin", shared=True, size=rows * dim, dtype=torch.float32).view(rows, dim)
t[123] = 1.5
t[9_999_999] = -0.25


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(1, dim, _freeze=True)
        self.emb.weight = nn.Parameter(t, requires_grad=False)
        self.emb.num_embeddings = rows
        self.out = nn.Linear(dim, 3)

    def forward(self, i):
        return self.out(self.emb(i))


m = Net()
W(m)
opt = torch.optim.Adam([p for p in m.parameters() if p.requires_grad], 1e-2)
for s in range(5):
    opt.zero_grad()
    F.cross_entropy(m(torch.tensor([123, 9_999_999, s])), torch.tensor([0, 1, 2])).backward()
    opt.step()
print(H(m.out.weight, m.out.bias), os.stat("table.bin").st_blocks < 200)
os.remove("table.bin")
