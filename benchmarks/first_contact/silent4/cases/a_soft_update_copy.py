from _training import *
q = mlp(4, 64, 3); tgt = copy.deepcopy(q); opt = torch.optim.Adam(q.parameters(), 1e-3); tau = .02
tp = list(tgt.parameters()) if H else [p.detach().clone() for p in tgt.parameters()]   # "shared" parameters that are a copy
t0 = tgt[0].weight.detach().clone(); M = torch.randn(4, 4) * .4
for step in range(400):
    s = torch.randn(64, 4); a = torch.randint(3, (64,)); s2 = s @ M + .1 * a[:, None]; r = s[:, 0] + .5
    with torch.no_grad(): y = r + .95 * tgt(s2).max(-1).values
    loss = F.smooth_l1_loss(q(s).gather(1, a[:, None]).squeeze(1), y); opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        for a_, b_ in zip(tp, q.parameters()): a_.mul_(1 - tau).add_(b_, alpha=tau)
truth(target_moved=(tgt[0].weight - t0).abs().max().item(), mean_q=q(torch.randn(500, 4)).max(-1).values.mean().item())
