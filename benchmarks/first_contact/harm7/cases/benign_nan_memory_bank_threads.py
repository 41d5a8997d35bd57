"""Two threads with a model each that enqueue features into a memory bank in forward and print from it, and see harmless nan in evaluation while the other thread works, must keep banks, order and lines."""
# PRELUDE
import threading


class Bank(nn.Module):
    def __init__(self, seed):
        super().__init__()
        self.f = net(seed, 8, 16, 6)
        self.register_buffer("bank", torch.zeros(12, 6))
        self.ptr, self.log, self.cache = 0, [], {}

    def forward(self, x):
        z = self.f(x)
        z = z / z.norm(dim=1, keepdim=True)
        with torch.no_grad():
            i = torch.arange(self.ptr, self.ptr + len(x)) % 12
            self.bank.index_copy_(0, i, z.detach())
            self.ptr = (self.ptr + len(x)) % 12
        self.cache.setdefault(len(self.log) % 3, []).append(z.detach().sum().item())
        self.log.append((self.ptr, len(self.cache)))
        return z @ self.bank.t().clone() / 0.1


lines, turn = {0: [], 1: []}, threading.Barrier(2)
models = [Bank(0), Bank(1)]


def work(k):
    m = models[k]
    W(m)
    opt = torch.optim.SGD(m.parameters(), 0.05)
    say = lines[k].append
    for s in range(6):
        x, _ = batch(s + 10 * k)
        turn.wait()
        opt.zero_grad()
        loss = F.cross_entropy(m(x), torch.arange(6))
        loss.backward()
        opt.step()
        say(f"{k} {s} {float(loss.detach()).hex()} {M(m)} {m.ptr} {m.log[-1]}")
        with torch.no_grad():
            last = m.f[4]
            keep = last.weight.clone(), last.bias.clone()
            last.weight.zero_()
            last.bias.zero_()
            m.eval()
            turn.wait()
            sim = m(x[:3])  # 0 / 0
            m.train()
            last.weight.copy_(keep[0])
            last.bias.copy_(keep[1])
            say(f"{k} {s} nan {sim.isnan().all().item()} {m.ptr} {H(m.bank.isnan())} {len(m.log)} {[len(v) for v in m.cache.values()]}")
            m.bank.nan_to_num_(0.1)


ts = [threading.Thread(target=work, args=(k,)) for k in (0, 1)]
for t in ts:
    t.start()
for t in ts:
    t.join()
for k in (0, 1):
    print(*lines[k], sep="\n")
