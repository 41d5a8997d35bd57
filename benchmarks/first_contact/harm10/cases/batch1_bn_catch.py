#: what: exceptions inside forwards that the script catches and goes on: batch norm with one sample, an index out of range in an embedding, an error raised in a custom Function's backward, a GeneratorExit in a streaming forward
#: source: memory
# PRELUDE
class Boom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bad): ctx.bad = bad; return x.clone()
    @staticmethod
    def backward(ctx, g):
        if ctx.bad: raise ValueError("boom")
        return g, None
class N(nn.Module):
    def __init__(self): super().__init__(); self.e = nn.Embedding(10, 6); self.b = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU()); self.o = nn.Linear(8, 2)
    def forward(self, ids, bad=False): return self.o(Boom.apply(self.b(self.e(ids)), bad))
    def stream(self, ids):
        for i in ids.split(2): yield self(i)
m = N(); watch(m); opt = torch.optim.Adam(m.parameters(), 1e-2); err = []
for s in range(20):
    ids = torch.randint(0, 12 if s % 5 == 1 else 10, (1 if s % 5 == 2 else 6,))
    try: l = F.cross_entropy(m(ids, s % 5 == 3), ids % 2); opt.zero_grad(); l.backward(); opt.step(); print(s, l.item())
    except (ValueError, IndexError) as e: err.append((s, type(e).__name__, str(e).splitlines()[0][:40])); opt.zero_grad()
    if s % 5 == 4:
        g = m.stream(torch.randint(0, 10, (6,))); a = next(g); g.close(); F.cross_entropy(a, torch.tensor([0, 1])).backward(); opt.step()
print(err); show(m, opt)
