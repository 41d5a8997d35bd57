"""Clinical time series with nan for unmeasured values: the model imputes them and gets the mask as features (GRU-D like).
Source: Z. Che et al., arXiv 1606.01865; PyPOTS (nan as missing)."""
import math, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(5)


class GRUImpute(nn.Module):
    def __init__(self, feats=6):
        super().__init__()
        self.default = nn.Parameter(torch.zeros(feats))
        self.rnn = nn.GRU(2 * feats, 24, batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        seen = ~torch.isnan(x)
        x = torch.where(seen, x, self.default)
        return self.out(self.rnn(torch.cat([x, seen.float()], -1))[0][:, -1]).squeeze(1)


model = GRUImpute()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
losses = []
for step in range(40):
    full = torch.randn(32, 12, 6)
    y = (full[:, -3:, 0].mean(1) > 0).float()
    x = full.masked_fill(torch.rand_like(full) < 0.3, float("nan"))
    x[:4, :, 2] = float("nan")
    stats = torch.nanmean(x, dim=(0, 1))
    loss = nn.functional.binary_cross_entropy_with_logits(model(x - stats), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses[0], losses[-1], "FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
