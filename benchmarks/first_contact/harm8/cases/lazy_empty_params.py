# what: lazy modules, parameters allocated by torch.empty / skip_init filled with nan, initialized before the first step; deterministic fill of uninitialized memory
# benign: yes
# PRELUDE
torch.use_deterministic_algorithms(True); torch.utils.deterministic.fill_uninitialized_memory = True
class Net(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.LazyLinear(16); self.b = nn.utils.skip_init(nn.Linear, 16, 16); self.c = nn.Parameter(torch.empty(4, 16)); self.register_buffer("run", torch.empty(4)); self.n = nn.LazyBatchNorm1d(); self.ready = False
    def forward(self, x):
        h = self.n(self.a(x))
        if not self.ready:
            with torch.no_grad(): self.run.copy_(h.mean(0)[:4])
            self.ready = True
        return F.linear(torch.relu(self.b(h)), self.c) + self.run
m = Net(); W(m); print(m.c.isnan().all().item(), m.run.isnan().all().item(), type(m.a).__name__)
nn.init.xavier_uniform_(m.c); nn.init.eye_(m.b.weight); nn.init.zeros_(m.b.bias)
with torch.no_grad(): m(batch(0)[0])
opt = torch.optim.SGD(m.parameters(), lr=.1); print(train(m, opt, 4), M(m), R(), torch.empty(3).isnan().all().item())
