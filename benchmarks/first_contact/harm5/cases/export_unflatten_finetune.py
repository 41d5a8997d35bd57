"""torch.export of a model in training with dynamic shapes, decompositions, unflatten, and fine-tuning of the unflattened module and of ep.module() with an optimizer; mutation of a buffer; the graph's text compared."""
# PRELUDE
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blk = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8)) for _ in range(2))
        self.o = nn.Linear(8, 4)
        self.register_buffer("n", torch.zeros(1))
    def forward(self, x, *, scale=1.0):
        self.n.add_(1)
        for b in self.blk:
            x = x + b(x)
        return {"y": self.o(x) * scale, "n": self.n}
m = Net()
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2)
def fit(f, opt, n, a):
    for s in range(a, a + n):
        x, y = batch(s, 4 + s % 3)
        opt.zero_grad()
        loss = F.mse_loss(f(x, scale=0.5)["y"], y)
        loss.backward()
        opt.step()
    return float(loss.detach()).hex()
print(fit(m, opt, 3, 0))
ep = torch.export.export(m, (batch(0)[0],), {"scale": 0.5}, dynamic_shapes={"x": {0: torch.export.Dim("b", min=2, max=64)}, "scale": None})
print(hashlib.sha256(ep.graph_module.code.encode()).hexdigest()[:12], len(ep.graph.nodes), [str(s.kind) for s in ep.graph_signature.input_specs][:3])
u = torch.export.unflatten(ep)
W(u)
print(fit(u, torch.optim.SGD(u.parameters(), 0.05), 3, 5), M(u), u.n)
e = ep.module()
W(e)
print(fit(e, torch.optim.SGD(e.parameters(), 0.05), 3, 5), M(e))
torch.export.save(ep, "ep.pt2")
e2 = torch.export.load("ep.pt2").run_decompositions().module()
print(H(e2(batch(3)[0], scale=0.5)["y"]), fit(m, opt, 2, 20), M(m), m.n, R())
os.remove("ep.pt2")
