"""torchmetrics that gather their states over two ranks with uneven batches (accuracy, AUROC with cat states, MeanMetric, a metric of the script's own with dist_reduce_fx), as children of a watched model, computed in training, reset, pickled, unsynced after an error."""
# PRELUDE
import pickle, warnings
import torch.distributed as dist
import torchmetrics as tm

warnings.simplefilter("ignore")
dist.init_process_group("gloo")
r = dist.get_rank()
say = lambda *a: open(f"rank{r}.txt", "a").write(" ".join(map(str, a)) + "\n")


class Top(tm.Metric):
    full_state_update = False

    def __init__(self):
        super().__init__()
        self.add_state("best", torch.tensor(-1e9), dist_reduce_fx="max")
        self.add_state("seen", [], dist_reduce_fx="cat")

    def update(self, x):
        self.best = torch.maximum(self.best, x.max())
        self.seen.append(x.flatten())

    def compute(self):
        return self.best, tm.utilities.dim_zero_cat(self.seen).sum()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net(7, o=3)
        self.acc, self.auc = tm.Accuracy("multiclass", num_classes=3), tm.AUROC("multiclass", num_classes=3)
        self.mean, self.top = tm.MeanMetric(), Top()

    def forward(self, x, y=None):
        out = self.body(x)
        if y is not None:
            self.acc.update(out.detach(), y)
            self.auc.update(out.detach().softmax(-1), y)
            self.top(out.detach())
        return out


m = Net()
W(m)
d = nn.parallel.DistributedDataParallel(m.body)
opt = torch.optim.SGD(m.parameters(), 0.05)
for epoch in range(3):
    for s in range(3):
        x = batch(10 * epoch + 2 * s + r, 4 + 3 * r)[0]
        y = (x.sum(-1).abs() * 2).long() % 3
        opt.zero_grad()
        loss = F.cross_entropy(m(x, y), y)
        loss.backward()
        for p in m.parameters():
            dist.all_reduce(p.grad)
        opt.step()
        m.mean.update(loss.detach())
    say(epoch, m.acc.compute().item().hex(), m.auc.compute().item().hex(), m.mean.compute().item().hex(), [v.item().hex() for v in m.top.compute()], M(m.body))
    m.top.sync()
    try:
        m.top.sync()
    except Exception as e:
        say(type(e).__name__, str(e)[:60])
    m.top.unsync()
    say(len(m.top.seen), len(pickle.dumps(m.acc)), H(pickle.loads(pickle.dumps(m.mean)).value if hasattr(m.mean, "value") else 0), sorted(m.state_dict())[:2])
    for k in (m.acc, m.auc, m.mean, m.top):
        k.reset()
say(R())
dist.barrier()
dist.destroy_process_group()
