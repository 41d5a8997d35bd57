"""A network that normalizes by running moments, draws numbers from five generators and advances iterators in its forward, and gives nan for constant inputs in evaluation, must draw and count exactly once."""
# PRELUDE
import itertools


class Running(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("m2", torch.zeros(8))
        self.register_buffer("count", torch.zeros((), dtype=torch.double))
        self.body = net(1)
        self.gen = torch.Generator().manual_seed(5)
        self.np = np.random.default_rng(6)
        self.py = random.Random(7)
        self.order = itertools.cycle(range(5))
        self.names = iter(f"call-{i}" for i in range(10**6))
        self.seen, self.window = [], []

    def forward(self, x):
        n = x.shape[0]
        d = x.mean(0) - self.mean
        tot = self.count + n
        self.mean += (d * n / tot).float()
        self.m2.add_(x.var(0, unbiased=False) * n).add_((d**2 * self.count * n / tot).float())
        self.count.copy_(tot)
        self.window.append(float(x.flatten()[0]))
        del self.window[:-4]
        z = (x - x.mean(0)) / x.std(0)  # 0 / 0 where a batch is constant
        if self.training:
            z = z.nan_to_num(0.0)
        noise = torch.randn(8, generator=self.gen) * 0.1 + float(self.np.normal()) * 0.01 + self.py.gauss(0, 0.01) + random.random() * 0.01 + float(np.random.rand()) * 0.01
        self.seen.append((next(self.order), next(self.names)))
        return self.body(F.dropout(z + noise, 0.1))


m = Running()
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(6):
    x, y = batch(s)
    loss = F.mse_loss(m(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if s % 2:
        m.eval()
        for kind in (torch.no_grad, torch.inference_mode):
            with kind():
                c = x.clone()
                c[:, 3] = 1.0
                out = m(c)
                err = (out - y).square().mean()
                print(s, "eval", out.isnan().all().item(), err.item(), m.seen[-1], m.window, next(m.order))
        m.train()
    print(s, float(loss.detach()).hex(), M(m), m.count.item(), R(), H(m.gen.get_state()), m.np.bit_generator.state["state"]["state"], m.py.random(), len(m.seen), m.mean._version)
