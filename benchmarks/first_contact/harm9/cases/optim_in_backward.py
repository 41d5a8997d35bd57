"""The optimizer's step within backward (register_post_accumulate_grad_hook, one optimizer a parameter), with a nan in a metric now and then."""
# PRELUDE
seed(30)
net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4))
watch(net)
opts = {p: torch.optim.Adam([p], 1e-3, foreach=False) for p in net.parameters()}
ran = []


def hook(p):
    opts[p].step()
    opts[p].zero_grad()
    ran.append(tuple(p.shape))


for p in net.parameters():
    p.register_post_accumulate_grad_hook(hook)
for step in range(25):
    x, y = torch.randn(16, 8), torch.randint(0, 4, (16,))
    out = net(x)
    loss = F.cross_entropy(out, y)
    loss.backward()
    with torch.no_grad():
        hits = (out.argmax(1) == y)
        per = torch.stack([hits[y == c].float().mean() for c in range(6)])
    print(step, dig(loss, per), len(ran), [p.grad is None for p in net.parameters()].count(True))
print(ran[:6], dig(ran))
print(dig([o.state_dict()["state"] for o in opts.values()]))
end(net)
