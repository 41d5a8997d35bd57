#: what: imputation in BRITS' manner: inputs hold nan, masked inside the forward with where, RNN cell by cell, loss over observed values only
#: benign: nan in the model's input
#: source: https://github.com/gzerveas/mvts_transformer/issues/41
# PRELUDE
class Brits(nn.Module):
    def __init__(self, d=3, h=12): super().__init__(); self.cell = nn.GRUCell(2 * d, h); self.reg = nn.Linear(h, d); self.decay = nn.Linear(d, h); self.h = h
    def forward(self, x):
        B, T, d = x.shape; ok = ~torch.isnan(x); h = x.new_zeros(B, self.h); loss, outs = 0.0, []; delta = torch.zeros(B, d)
        for t in range(T):
            est = self.reg(h * torch.exp(-F.relu(self.decay(delta)))); xt = torch.where(ok[:, t], x[:, t], est); loss = loss + (torch.nan_to_num(x[:, t]) - est).abs()[ok[:, t]].sum() / (ok[:, t].sum() + 1e-5); h = self.cell(torch.cat([xt, ok[:, t].float()], 1), h); delta = torch.where(ok[:, t], torch.ones_like(delta), delta + 1); outs.append(xt)
        return loss / T, torch.stack(outs, 1)
m = Brits(); watch(m); opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(12): x = torch.randn(6, 7, 3).cumsum(1); x[torch.rand_like(x) < 0.3] = float("nan"); x[0] = float("nan") if s == 4 else x[0]; l, y = m(x); opt.zero_grad(); l.backward(); nn.utils.clip_grad_norm_(m.parameters(), 1.0); opt.step(); print(l.item(), torch.isnan(y).sum().item(), torch.nanmean(x).item())
show(m, opt)
