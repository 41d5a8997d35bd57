# what: rows of an embedding that must never be read (padding, new tokens after resize) hold nan as a canary; SGD without momentum never touches them
# benign: yes
# PRELUDE
class Net(nn.Module):
    def __init__(self): super().__init__(); self.e = nn.Embedding(20, 8, sparse=True); self.o = nn.Linear(8, 4)
    def forward(self, i): return self.o(self.e(i).mean(1))
m = Net(); W(m); opt = torch.optim.SGD(m.parameters(), lr=.1)
with torch.no_grad(): m.e.weight[0] = float("nan"); m.e.weight[15:] = float("nan")
for s in range(6):
    i = torch.randint(1, 15, (6, 3), generator=torch.Generator().manual_seed(s)); opt.zero_grad(); l = F.mse_loss(m(i), batch(s)[1]); l.backward(); opt.step(); print(float(l.detach()).hex(), m.e.weight.isnan().any(1).sum().item())
    if s == 3:
        with torch.no_grad(): m.e.weight[15:17] = m.e.weight[1:3]
print(M(m), R())
