"""The usual guard: a batch with a bad sample has a loss of nan or inf, which is logged, and the batch is skipped before backward."""
# PRELUDE
seed(8)
net = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16, track_running_stats=False), nn.ELU(), nn.Linear(16, 1))
watch(net)
opt = torch.optim.RMSprop(net.parameters(), 1e-3)
skipped = 0
for step in range(40):
    x = torch.randn(16, 5)
    if step % 7 == 3:
        x[2, 1] = float("nan")
    if step % 11 == 5:
        x[1] = float("inf")
    y = torch.rand(16, 1)
    opt.zero_grad()
    out = net(x)
    loss = -(y * F.logsigmoid(out)).mean()
    if not torch.isfinite(loss):
        skipped += 1
        print(step, f"WARNING: non-finite loss, ending training on this batch {loss.item()}")
        del loss, out
        continue
    loss.backward()
    opt.step()
    print(step, dig(loss))
print(skipped)
end(net, opt)
