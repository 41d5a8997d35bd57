"""torchmetrics (which are nn.Modules with states and reset) beside a model; values and states.

Source: https://github.com/Lightning-AI/torchmetrics (README)
"""
# PRELUDE
import torchmetrics
m = net(o=4); W(m)
acc = torchmetrics.classification.MulticlassAccuracy(4, average="macro")
col = torchmetrics.MetricCollection([acc, torchmetrics.classification.MulticlassF1Score(4)])
avg = torchmetrics.MeanMetric()
opt = torch.optim.Adam(m.parameters(), 1e-2)
for ep in range(2):
    for s in range(3):
        x, _ = batch(s); y = torch.arange(6) % 4
        out = m(x); loss = F.cross_entropy(out, y)
        opt.zero_grad(); loss.backward(); opt.step()
        col.update(out.detach(), y); avg.update(loss.detach())
    print({k: float(v).hex() for k, v in col.compute().items()}, float(avg.compute()).hex())
    col.reset(); avg.reset()
print(M(m), R())
