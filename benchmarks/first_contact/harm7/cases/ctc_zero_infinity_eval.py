"""CTC with targets that are too long (inf in evaluation, zeroed in training), its two graph nodes, gradients and decoded texts must stay the same."""
# PRELUDE
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.r, self.o = nn.Conv1d(5, 12, 3, padding=1), nn.GRU(12, 10, bidirectional=True, batch_first=True), nn.Linear(20, 6)

    def forward(self, x):
        h = F.max_pool1d(torch.relu(self.c(x)), 2)
        return self.o(self.r(h.transpose(1, 2))[0]).log_softmax(-1).transpose(0, 1)


torch.manual_seed(1)
m = Net()
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(5):
    g = torch.Generator().manual_seed(s)
    x = torch.randn(4, 5, 24, generator=g)
    tl = torch.tensor([3, 5, 4, 2]) if s % 2 else torch.tensor([3, 14, 4, 2])
    t = torch.randint(1, 6, (4, 14), generator=g)
    lp = m(x)
    il = torch.tensor([12, 12, 10, 8])
    kinds = {"zi": F.ctc_loss(lp, t, il, tl, zero_infinity=True), "cat": F.ctc_loss(lp, torch.cat([q[:n] for q, n in zip(t, tl)]), il, tl, zero_infinity=True),
             "tuple": F.ctc_loss(lp, t, (12, 12, 10, 8), tuple(tl.tolist()), reduction="sum", zero_infinity=True), "i32": F.ctc_loss(lp.double(), t.int(), il.int(), tl.int(), zero_infinity=True)}
    for k, v in kinds.items():
        f, names = v.grad_fn, []
        while f is not None and len(names) < 8:
            names.append(f.name())
            f = f.next_functions[0][0] if f.next_functions else None
        print(s, k, float(v.detach()).hex(), names)
    opt.zero_grad()
    kinds["zi"].backward()
    opt.step()
    with torch.no_grad():
        each = F.ctc_loss(m(x), t, il, tl, reduction="none")
        print(s, "eval", each.isinf().tolist(), H(each), H(torch._ctc_loss(m(x), t, il, tl)[0]))
        best = m(x).argmax(-1).T
        print(s, ["".join(str(c) for c in torch.unique_consecutive(b).tolist() if c) for b in best], M(m))
