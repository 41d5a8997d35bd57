# what: torchmetrics as submodules of a model; Pearson of a constant, R2 of one sample, AUROC without positives, mean of none: nan
# benign: yes
# cmp: status stdout files left
# PRELUDE
import warnings; warnings.simplefilter("ignore")
import torchmetrics as tm
class Net(nn.Module):
    def __init__(self): super().__init__(); self.f = net(); self.m = tm.MetricCollection({"p": tm.PearsonCorrCoef(num_outputs=4), "mse": tm.MeanSquaredError(), "s": tm.SpearmanCorrCoef(num_outputs=4)}); self.best = tm.MinMetric(nan_strategy="ignore"); self.mean = tm.MeanMetric(nan_strategy="disable"); self.auc = tm.AUROC("binary")
    def forward(self, x): return self.f(x)
m = Net(); W(m); opt = torch.optim.SGD(m.parameters(), lr=.1)
for e in range(3):
    print(train(m, opt, 3, 3 * e)); m.eval()
    with torch.no_grad():
        for k in range(2): x, y = batch(40 + k); o = m(x); o[:, 0] = 1.; m.m.update(o, y); m.mean(o.mean() * float("nan")); m.auc.update(o[:, 1].sigmoid(), torch.zeros(6, dtype=torch.int))
        r = m.m.compute(); print({k: [str(float(q)) for q in v.reshape(-1)] for k, v in r.items()}, m.mean.compute().item(), m.auc.compute().item(), m.best(r["mse"]).item().hex()); m.m.reset(); m.mean.reset(); m.auc.reset()
    m.train()
print(H(dict(m.state_dict())), tm.functional.r2_score(torch.ones(2), torch.ones(2)).item(), R())
