"""Federated rounds: clients as deep copies of the watched server model, proximal term, SCAFFOLD's control variates added to gradients, weighted state dict average with integer buffers, clients dropped."""
# PRELUDE
import copy
server = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
W(server)
c = [torch.zeros_like(p) for p in server.parameters()]
ci = {k: [torch.zeros_like(p) for p in server.parameters()] for k in range(4)}
opt0 = torch.optim.SGD(server.parameters(), 0.1)
for rnd in range(3):
    picked = random.sample(range(4), 3)
    sds, ws, ds = [], [], []
    for k in picked:
        cl = copy.deepcopy(server)
        W(cl)
        g0 = [p.detach().clone() for p in server.parameters()]
        opt = torch.optim.SGD(cl.parameters(), 0.05)
        for s in range(3):
            x, y = batch(rnd * 100 + k * 10 + s, 4 + k)
            opt.zero_grad()
            loss = F.mse_loss(cl(x), y) + 0.05 * sum((p - g).square().sum() for p, g in zip(cl.parameters(), g0))
            loss.backward()
            for p, a, b in zip(cl.parameters(), c, ci[k]):
                p.grad += a - b
            opt.step()
        with torch.no_grad():
            new = [b - a + (g - p) / (3 * 0.05) for a, b, g, p in zip(c, ci[k], g0, cl.parameters())]
            ds.append([n - b for n, b in zip(new, ci[k])])
            ci[k] = new
        sds.append(copy.deepcopy(cl.state_dict()))
        ws.append(4 + k)
        if rnd == 1 and k == picked[0]:
            del cl
    avg = {n: (sum(w * sd[n].double() for w, sd in zip(ws, sds)) / sum(ws)).to(sds[0][n].dtype) for n in sds[0]}
    server.load_state_dict(avg)
    c = [a + sum(d[i] for d in ds) / 4 for i, a in enumerate(c)]
    print(rnd, picked, H(avg), H(c))
server.train()
opt0.zero_grad()
F.mse_loss(server(batch(999)[0]), batch(999)[1]).backward()
opt0.step()
print(M(server), R())
