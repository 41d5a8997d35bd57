"""A model under watch that changes its dtypes in mid-run: norms upcast in a bfloat16 model, .double() and back with optimizer states cast, requires_grad_ of parts, to(memory_format), parameters re-tied, share_memory, to_empty and reload, zero_grad set to zero."""
# PRELUDE
class N(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.ln, self.l, self.o = nn.Embedding(12, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 12, bias=False)
        self.o.weight = self.e.weight
    def forward(self, t):
        x = self.e(t)
        x = self.l(self.ln(x.to(self.ln.weight.dtype)).to(self.l.weight.dtype))
        return self.o(x.to(self.o.weight.dtype))
m = N()
W(m)
def go(opt, n, f):
    for s in range(f, f + n):
        t = torch.randint(0, 12, (4,), generator=torch.Generator().manual_seed(s))
        opt.zero_grad(set_to_none=bool(s % 2))
        loss = F.cross_entropy(m(t).float(), t.roll(1))
        loss.backward()
        opt.step()
    return float(loss.detach()).hex()
opt = torch.optim.Adam(m.parameters(), 1e-2)
print(go(opt, 3, 0), M(m))
m.to(torch.bfloat16)
m.ln.float()
for n, p in m.named_parameters():
    p.grad = None
opt = torch.optim.Adam(m.parameters(), 1e-2)
print(go(opt, 3, 10), M(m), m.o.weight is m.e.weight)
m.double()
for st in opt.state.values():
    for k, v in st.items():
        if k != "step":
            st[k] = v.double()
print(go(opt, 3, 20), M(m))
m.float()
m.e.requires_grad_(False)
opt = torch.optim.SGD([p for p in m.parameters() if p.requires_grad], 0.05)
print(go(opt, 2, 30))
m.e.requires_grad_(True)
sd = {k: v.clone() for k, v in m.state_dict().items()}
m.to_empty(device="cpu")
m.load_state_dict(sd)
m.o.weight = m.e.weight
m.share_memory()
opt = torch.optim.SGD(m.parameters(), 0.05)
print(go(opt, 3, 40), M(m), R(), m.l.weight.is_shared())
