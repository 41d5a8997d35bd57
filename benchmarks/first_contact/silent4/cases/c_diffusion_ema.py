from _training import *
class Den(nn.Module):
    def __init__(s): super().__init__(); s.t = nn.Embedding(50, 32); s.i = nn.Linear(2, 64); s.tp = nn.Linear(32, 64); s.n = mlp(64, 64, 2, act=nn.SiLU)
    def forward(s, x, t): return s.n(F.silu(s.i(x) + s.tp(s.t(t))))
m = Den(); ema = torch.optim.swa_utils.AveragedModel(m, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(.99)); opt = torch.optim.Adam(m.parameters(), 2e-3); ab = torch.cumprod(1 - torch.linspace(1e-4, .15, 50), 0); ls = []
for step in range(1200):
    a = torch.rand(128) * 6.28; x = torch.stack([a.cos(), a.sin()], -1) + .05 * torch.randn(128, 2); t = torch.randint(50, (128,)); n = torch.randn(128, 2)
    loss = F.mse_loss(m(ab[t, None].sqrt() * x + (1 - ab[t, None]).sqrt() * n, t), n); opt.zero_grad(); loss.backward(); opt.step(); ema.update_parameters(m); ls.append(loss.item())
truth(first=ls[0], last=sum(ls[-50:]) / 50)
