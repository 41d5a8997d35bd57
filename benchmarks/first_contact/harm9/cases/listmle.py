"""Learning to rank (allRank): padded documents have -inf scores, ListMLE by logcumsumexp, NDCG with 0/0 for queries without relevant ones."""
# PRELUDE
seed(26)
net = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 1))
watch(net)
opt = torch.optim.Adagrad(net.parameters(), 0.05)


def listmle(s, y):
    y, i = y.sort(1, descending=True)
    mask = y < 0
    s = s.gather(1, i).masked_fill(mask, -1e4)
    m = s.max(1, keepdim=True)[0]
    c = torch.logcumsumexp((s - m).flip(1), 1).flip(1)
    return (c - (s - m)).masked_fill(mask, 0).sum(1).mean()


def listnet(s, y):
    mask = y < 0
    t = y.masked_fill(mask, -math.inf).softmax(1)
    return -(t * s.masked_fill(mask, -1e9).log_softmax(1)).sum(1).mean()


def ndcg(s, y):
    y = y.clamp(min=0)
    disc = 1 / torch.log2(torch.arange(y.shape[1]) + 2.0)
    gain = lambda o: ((2 ** y.gather(1, o) - 1) * disc).sum(1)
    return gain(s.argsort(1, descending=True)) / gain(y.argsort(1, descending=True))


for step in range(25):
    x, y = torch.randn(8, 10, 7), torch.randint(0, 4, (8, 10)).float()
    for q in range(8):
        y[q, 4 + q % 5:] = -1
    y[3] = torch.where(y[3] > 0, 0.0, y[3])
    s = net(x).squeeze(-1)
    loss = listnet(s, y) + 0.1 * listmle(s.masked_fill(y < 0, -1e4), y)
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        n = ndcg(net(x).squeeze(-1).masked_fill(y < 0, -math.inf), y)
        print(step, dig(loss, n), int(n.isnan().sum()), dig(n.nanmean()))
end(net, opt)
