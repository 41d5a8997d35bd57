#: what: Cox partial likelihood by logcumsumexp; a batch without events divides by 0 and is skipped by a test of the loss before backward
#: benign: nan losses that are not trained
#: source: https://github.com/havakv/pycox/issues/124
# PRELUDE
m = nn.Sequential(nn.Linear(6, 16), nn.SELU(), nn.AlphaDropout(0.1), nn.Linear(16, 1)); watch(m); opt = torch.optim.Adam(m.parameters(), 1e-2); ema = None
def cox(lh, t, e): o = t.argsort(descending=True); lh, e = lh[o], e[o]; return -((lh - torch.logcumsumexp(lh, 0)) * e).sum() / e.sum()
losses = []
for s in range(25):
    x = torch.randn(6, 6); t = torch.rand(6); e = (torch.rand(6) < 0.2).float(); l = cox(m(x).squeeze(1), t, e); losses.append(l)
    if torch.isnan(l) or torch.isinf(l): continue
    opt.zero_grad(); l.backward(); opt.step(); ema = l.item() if ema is None else 0.9 * ema + 0.1 * l.item()
L = torch.stack(losses); print("mean", torch.nanmean(L).item(), "nan", torch.isnan(L).sum().item(), ema); show(m, opt)
