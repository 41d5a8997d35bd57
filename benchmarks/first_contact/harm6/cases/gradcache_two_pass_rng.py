"""GradCache: large contrastive batches in two passes; the random states of each chunk are kept and set again for the second forward with dropout, the cached gradient of the embeddings is given by a surrogate dot product; equal to one big batch."""
# PRELUDE
class RandState:
    def __init__(self, *tensors):
        self.cpu = torch.get_rng_state()

    def __enter__(self):
        self.fork = torch.random.fork_rng(devices=[], enabled=True)
        self.fork.__enter__()
        torch.set_rng_state(self.cpu)

    def __exit__(self, *e):
        self.fork.__exit__(*e)


class Tower(nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.body = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.GELU(), nn.Linear(16, 6))

    def forward(self, x):
        return F.normalize(self.body(x), dim=-1)


q, p = Tower(1), Tower(2)
W(q)
W(p)
opt = torch.optim.AdamW([*q.parameters(), *p.parameters()], 1e-2)
for s in range(5):
    xs, ys = batch(s, 24)[0], batch(s + 100, 24)[0]
    reps, states = {}, {}
    for name, tower, data in (("q", q, xs), ("p", p, ys)):
        reps[name], states[name] = [], []
        with torch.no_grad():
            for chunk in data.split(8):
                states[name].append(RandState(chunk))
                reps[name].append(tower(chunk))
    after = torch.get_rng_state()
    a, b = (torch.cat(reps[n]).detach().requires_grad_() for n in "qp")
    loss = F.cross_entropy(a @ b.t() / 0.1, torch.arange(24))
    loss.backward()
    cache = {"q": a.grad.split(8), "p": b.grad.split(8)}
    opt.zero_grad()
    for name, tower, data in (("q", q, xs), ("p", p, ys)):
        for chunk, state, g, r in zip(data.split(8), states[name], cache[name], reps[name]):
            with state:
                y = tower(chunk)
            assert y.detach().equal(r)
            torch.dot(y.flatten(), g.flatten()).backward()
    assert torch.get_rng_state().equal(after)
    opt.step()
    print(s, loss.item().hex(), M(q), M(p), R())
print(H(opt.state_dict()))
