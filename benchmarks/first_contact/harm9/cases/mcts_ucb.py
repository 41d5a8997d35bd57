"""AlphaZero in small: a tree search whose unvisited children have a score of inf, hundreds of calls of the network, then training on visits."""
# PRELUDE
seed(24)


class PV(nn.Module):
    def __init__(self):
        super().__init__()
        self.b, self.p, self.v = nn.Linear(9, 32), nn.Linear(32, 9), nn.Linear(32, 1)

    def forward(self, s):
        h = self.b(s).relu()
        return self.p(h).log_softmax(-1), self.v(h).tanh()


WIN = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]
over = lambda b: next((b[i] for i, j, k in WIN if b[i] and b[i] == b[j] == b[k]), 0)
net = PV()
watch(net)
opt = torch.optim.Adam(net.parameters(), 1e-2)
calls = 0


def search(board, n=12):
    global calls
    N, W, P = {}, {}, {}

    def go(b):
        global calls
        w = over(b)
        if w:
            return -1.0
        free = [i for i in range(9) if not b[i]]
        if not free:
            return 0.0
        k = tuple(b)
        if k not in P:
            calls += 1
            with torch.no_grad():
                p, v = net(torch.tensor(b, dtype=torch.float32)[None])
                p[0, [i for i in range(9) if b[i]]] = -math.inf
            P[k] = p[0].exp()
            N[k], W[k] = [0] * 9, [0.0] * 9
            return v.item()
        s = sum(N[k])
        u = [(math.inf if N[k][a] == 0 and s < 3 else W[k][a] / max(1, N[k][a]) + 1.5 * P[k][a].item() * math.sqrt(s + 1) / (1 + N[k][a])) for a in free]
        a = free[max(range(len(free)), key=u.__getitem__)]
        nb = [-x for x in b]
        nb[a] = -1
        r = -go(nb)
        N[k][a] += 1; W[k][a] += r
        return r

    for _ in range(n):
        go(board)
    return torch.tensor(N[tuple(board)], dtype=torch.float32)


for game in range(6):
    b, data = [0] * 9, []
    while not over(b) and 0 in b:
        n = search(b)
        pi = n / n.sum()
        data.append((torch.tensor(b, dtype=torch.float32), pi))
        a = int(torch.multinomial(pi, 1))
        b = [-x for x in b]
        b[a] = -1
    z = 1.0 if over(b) else 0.0
    s, pi = map(torch.stack, zip(*data))
    p, v = net(s)
    loss = -(pi * p).sum(1).mean() + (v.squeeze(1) - z).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    print(game, dig(loss), calls)
end(net, opt)
