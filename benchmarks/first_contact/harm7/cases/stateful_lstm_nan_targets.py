"""A forecaster that keeps its hidden state between calls (in-place, detached, reset now and then), masks nan targets and reports sMAPE and R2 that are 0/0 in places must keep states, metrics and warnings."""
# PRELUDE
import warnings


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.o = nn.LSTM(3, 10, 2, batch_first=True), nn.Linear(10, 2)
        self.hidden, self.steps = None, 0
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x):
        self.steps += x.shape[1]
        self.scale.mul_(0.9).add_(x.detach().abs().mean((0, 1)), alpha=0.1)
        x = x / self.scale
        if self.hidden is not None and not self.training:
            with torch.no_grad():
                self.hidden[0].mul_(0.99)
        out, h = self.l(x, self.hidden)
        self.hidden = tuple(t.detach() for t in h)
        return self.o(out)


torch.manual_seed(1)
m = Forecaster()
W(m)
opt = torch.optim.RMSprop(m.parameters(), 5e-3, centered=True)
g = torch.Generator().manual_seed(0)
series = torch.randn(2, 96, 3, generator=g).cumsum(1) * 0.1
target = series[..., :2].roll(-1, 1).clone()
target[0, 10:20, 0] = float("nan")
target[1, ::7] = float("nan")
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for e in range(2):
        m.hidden = None
        for s in range(0, 96, 16):
            x, y = series[:, s : s + 16], target[:, s : s + 16]
            p = m(x)
            mask = ~y.isnan()
            loss = torch.where(mask, F.smooth_l1_loss(p, y.nan_to_num(0.0), reduction="none"), torch.zeros(())).sum() / mask.sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
            print(e, s, float(loss.detach()).hex(), M(m), H(m.hidden), m.hidden[0]._version, m.steps)
        m.eval()
        m.hidden = None
        with torch.inference_mode() if e else torch.no_grad():
            for s in range(0, 96, 32):
                x, y = series[:, s : s + 32], target[:, s : s + 32]
                p = m(x * 0 if s == 32 else x)
                raw = (p - y).abs()
                smape = (2 * raw / (p.abs() + y.abs())).nanmean()
                flat = torch.zeros_like(y)
                r2 = 1 - (flat - flat).square().sum(1) / (flat - flat.mean(1, keepdim=True)).square().sum(1)
                corr = torch.corrcoef(torch.stack([flat[0, :, 0], p[0, :, 0]]))
                q = torch.nanquantile(raw, torch.tensor([0.1, 0.9]), dim=1)
                print(e, s, "eval", float(raw.mean()), float(smape).hex(), r2.flatten().tolist(), corr.isnan().tolist(), H(q), H(torch.nanmedian(raw)), H(m.hidden), m.steps, H(y.std(0)), H(torch.std(y[:, :1], 1)), H(torch.var_mean(y, 1)[0]), H(m.scale))
        m.train()
        m.hidden = None
print([str(w.message)[:100] for w in seen])
