"""AlphaZero in small: self-play games of tic-tac-toe by MCTS, where each leaf is one evaluation of the net (eval mode, no gradients, batch of one), Dirichlet noise, a replay buffer, training steps between games, an arena against a copy."""
import copy, math
# PRELUDE
LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
        self.p, self.v = nn.Linear(72, 9), nn.Linear(72, 1)

    def forward(self, x):
        h = self.body(x)
        return self.p(h), torch.tanh(self.v(h))


def planes(b, me):
    t = torch.tensor(b, dtype=torch.float32).view(3, 3)
    return torch.stack([(t == me).float(), (t == -me).float()])


def result(b):
    for i, j, k in LINES:
        if b[i] and b[i] == b[j] == b[k]:
            return b[i]
    return 0 if 0 not in b else None


class Node:
    def __init__(self, p):
        self.p, self.n, self.w, self.kids = p, 0, 0.0, {}


def expand(m, node, b, me, noise=False):
    m.eval()
    with torch.no_grad():
        logits, v = m(planes(b, me)[None])
    p = torch.full((9,), -math.inf)
    for k in range(9):
        if b[k] == 0:
            p[k] = logits[0, k]
    p = torch.softmax(p, 0).numpy()
    if noise:
        p = 0.75 * p + 0.25 * np.random.dirichlet([0.5] * 9)
    node.kids = {k: Node(float(p[k])) for k in range(9) if b[k] == 0}
    return float(v)


def search(m, b, me, sims, noise):
    root = Node(1.0)
    expand(m, root, b, me, noise)
    for _ in range(sims):
        node, path, board, who = root, [root], list(b), me
        while node.kids:
            k, node = max(node.kids.items(), key=lambda kv: -kv[1].w / (kv[1].n or 1) + 1.5 * kv[1].p * math.sqrt(path[-1].n + 1) / (1 + kv[1].n))
            board[k] = who
            who = -who
            path.append(node)
        r = result(board)
        v = expand(m, node, board, who) if r is None else r * who
        for n in reversed(path):
            n.n += 1
            n.w += v
            v = -v
    return np.array([root.kids[k].n if k in root.kids else 0 for k in range(9)], np.float64)


def play(m, other, noise=True):
    b, me, hist = [0] * 9, 1, []
    while result(b) is None:
        pi = search(m if me == 1 else other, b, me, 10, noise)
        hist.append((planes(b, me), pi / pi.sum(), me))
        b[int(np.random.choice(9, p=pi / pi.sum())) if noise else int(pi.argmax())] = me
        me = -me
    r = result(b)
    return [(x, p, r * w) for x, p, w in hist], r


m = Net()
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2, weight_decay=1e-4)
buffer = []
for game in range(3):
    got, r = play(m, m)
    buffer += got
    m.train()
    for _ in range(3):
        picks = random.sample(buffer, min(8, len(buffer)))
        x = torch.stack([p[0] for p in picks])
        pi, z = torch.tensor(np.array([p[1] for p in picks]), dtype=torch.float32), torch.tensor([float(p[2]) for p in picks])
        logits, v = m(x)
        loss = F.cross_entropy(logits, pi) + F.mse_loss(v[:, 0], z)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(game, r, len(buffer), loss.item().hex(), M(m), R())
old = copy.deepcopy(m)
print(play(m, old, False)[1], play(old, m, False)[1], M(old), R())
