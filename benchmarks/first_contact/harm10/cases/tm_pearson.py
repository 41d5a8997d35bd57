#: what: torchmetrics in a training loop: PearsonCorrCoef of single samples and constants, R2, MetricCollection, MinMaxMetric, BootStrapper; states reset and saved
#: benign: nan metrics in training and evaluation, metrics as submodules of the model
#: source: https://github.com/Lightning-AI/torchmetrics/issues/2014
# PRELUDE
import warnings; warnings.filterwarnings("ignore")
import torchmetrics as tm
class M(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)); self.metrics = tm.MetricCollection([tm.PearsonCorrCoef(), tm.SpearmanCorrCoef(), tm.ExplainedVariance()]); self.mm = tm.MinMaxMetric(tm.MeanAbsoluteError()); self.mean = tm.MeanMetric(nan_strategy="ignore")
    def forward(self, x, y=None):
        p = self.f(x).squeeze(1)
        if y is not None: self.last = self.metrics(p.detach(), y); self.mm.update(p.detach(), y); self.mean.update(self.last["PearsonCorrCoef"])
        return p
m = M(); watch(m); opt = torch.optim.Adam(m.parameters(), 1e-2)
for ep in range(4):
    for s in range(5): x = torch.randn(1 if s % 2 else 6, 3); y = x.sum(1) if s < 4 else torch.ones(len(x)); l = F.mse_loss(m(x, y), y); opt.zero_grad(); l.backward(); opt.step(); print({k: v.item() for k, v in m.last.items()})
    print(ep, {k: float(v) for k, v in m.metrics.compute().items()}, {k: float(v) for k, v in m.mm.compute().items()}, float(m.mean.compute())); m.metrics.reset(); m.mm.reset()
show(m, opt); torch.save(m.state_dict(), "m.pt")
