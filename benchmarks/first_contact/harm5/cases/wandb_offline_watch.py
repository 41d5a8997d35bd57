"""wandb offline with wandb.watch(log="all", log_graph) on the model: its gradient hooks and histograms, a summary, unwatch in the middle, finish."""
# PRELUDE
import wandb
run = wandb.init(project="p", mode="offline", dir=".", settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, x_disable_meta=True))
st0 = R()
m = net(2)
W(m)
wandb.watch(m, log="all", log_freq=2, log_graph=True)
opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(6):
    x, y = batch(s)
    opt.zero_grad()
    loss = F.mse_loss(m(x), y)
    loss.backward()
    opt.step()
    run.log({"loss": loss.item(), "hist": wandb.Histogram(m[0].weight.grad.numpy().ravel())})
    print(s, loss.item().hex(), H(m[0].weight.grad))
    if s == 3:
        wandb.unwatch(m)
run.summary["best"] = 1
print(dict(run.summary)["loss"].hex(), sorted(run.summary.keys()) , M(m), st0 == R())
run.finish()
