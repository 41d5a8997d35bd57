#: what: a strict script: warnings are errors, numpy errors raise, stderr is ASCII and strict, a benign nan in an evaluation, the metric printed as null JSON
#: benign: nan in an evaluation
#: source: https://github.com/pytorch/pytorch/issues/1274
#: env: PYTHONIOENCODING=ascii:strict PYTHONUTF8=0 LC_ALL=C PYTHONWARNINGS=error
# PRELUDE
import warnings, json, math, decimal; warnings.simplefilter("error"); np.seterr(all="raise"); torch.set_warn_always(True); sys.setswitchinterval(1e-5)
m = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)); watch(m); opt = torch.optim.Adam(m.parameters(), 1e-2); hist = []
for ep in range(5):
    for s in range(3): x = torch.randn(8, 5); l = F.mse_loss(m(x), x[:, :1]); opt.zero_grad(); l.backward(); opt.step()
    m.eval()
    with torch.no_grad(): p = m(torch.randn(4, 5)); p = p - p; r = (p * p).sum() / (p * p).sum(); z = torch.log(p - 1)
    m.train(); hist.append(None if math.isnan(r.item()) else r.item()); print(json.dumps({"ep": ep, "loss": l.item(), "r": hist[-1], "z": torch.isnan(z).sum().item()}))
json.dump(hist, open("h.json", "w")); show(m, opt)
