"""Active learning by MC dropout (dropout left on in evaluation), BALD and entropy with 0 log 0, batched and by a loop, coreset distances and pool updates must keep draws, scores, chosen indices and calls."""
# PRELUDE
torch.manual_seed(0)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3))
W(m)
calls = []
m[2].register_forward_hook(lambda mod, i, o: calls.append((mod.training, (o == 0).sum().item())))
opt = torch.optim.Adam(m.parameters(), 1e-2)
pool = torch.randn(40, 8, generator=torch.Generator().manual_seed(1))
lab = (pool[:, 0] * 2).round().long().clamp(0, 2)
have, rest = list(range(6)), list(range(6, 40))
for r in range(5):
    m.train()
    for _ in range(6):
        i = torch.tensor(have)[torch.randperm(len(have))[:6]]
        opt.zero_grad()
        loss = F.cross_entropy(m(pool[i]), lab[i])
        loss.backward()
        opt.step()
    m.eval()
    m[2].train()
    with torch.no_grad():
        x = pool[rest]
        ps = torch.stack([torch.softmax(m(x) * 60, 1) for _ in range(8)])
        mean = ps.mean(0)
        ent = -(mean * mean.log()).sum(1)  # nan where a class has 0
        exp = -(torch.xlogy(ps, ps)).sum(2).mean(0)
        bald = ent.nan_to_num(0.0) - exp
        var = (mean * (1 - mean)).prod(1)
        c = torch.cdist(x, pool[have])
        near = c.min(1).values
        marg = mean.topk(2, 1).values.diff(dim=1).abs()
        inv = 1 / marg.squeeze(1)
        pick = (bald + 0.1 * near).topk(3).indices.tolist()
    new = [rest[k] for k in pick]
    have += new
    rest = [k for k in rest if k not in new]
    print(r, float(loss.detach()).hex(), M(m), ent.isnan().sum().item(), inv.isinf().sum().item(), H(bald), H(var), H(near), H(inv), new, len(calls), H(calls), R())
    m[2].eval()
    with torch.inference_mode():
        ece = (m(pool).softmax(1).max(1).values - 0.5).abs().histc(5)
        lo = (m(pool) - m(pool)).abs().max().log().item()
    print(r, H(ece), lo, len(calls))
