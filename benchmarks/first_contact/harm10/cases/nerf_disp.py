#: what: a small NeRF: disparity 1/(depth/acc) is 0/0 for empty rays, saved to a file, not trained
#: benign: nan disparity map from inside the renderer module, with grad enabled
#: source: https://github.com/yenchenlin/nerf-pytorch/issues/59
# PRELUDE
class NeRF(nn.Module):
    def __init__(self, L=4):
        super().__init__(); self.L = L; self.net = nn.Sequential(nn.Linear(3 + 6 * L, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 4))
    def embed(self, p): return torch.cat([p] + [f(p * 2.0 ** i) for i in range(self.L) for f in (torch.sin, torch.cos)], -1)
    def forward(self, o, d, n=16, noise=0.0):
        z = torch.linspace(2, 6, n).expand(len(o), n); z = z + torch.rand_like(z) * 0.25
        raw = self.net(self.embed(o[:, None] + d[:, None] * z[..., None]))
        dist = torch.cat([z[:, 1:] - z[:, :-1], torch.full((len(o), 1), 1e10)], 1) * d.norm(dim=-1, keepdim=True)
        alpha = 1 - torch.exp(-F.relu(raw[..., 3] - 0.05 + noise * torch.randn_like(raw[..., 3])) * dist)
        w = alpha * torch.cumprod(torch.cat([torch.ones(len(o), 1), 1 - alpha + 1e-10], 1), 1)[:, :-1]
        rgb = (w[..., None] * torch.sigmoid(raw[..., :3])).sum(1); depth = (w * z).sum(1); acc = w.sum(1)
        disp = 1.0 / torch.max(1e-10 * torch.ones_like(depth), depth / acc)
        return rgb + (1 - acc[:, None]), disp, acc, depth
m = NeRF(); watch(m); opt = torch.optim.Adam(m.parameters(), 5e-3); nans = 0
for step in range(30):
    o = torch.randn(64, 3) * 0.3; d = F.normalize(torch.randn(64, 3), dim=1)
    rgb, disp, acc, depth = m(o, d, noise=0.1 if step % 2 else 0.0)
    loss = F.mse_loss(rgb, torch.ones(64, 3) * 0.9); nans += int(torch.isnan(disp).sum())
    opt.zero_grad(); loss.backward(); opt.step()
    for g in opt.param_groups: g["lr"] = 5e-3 * 0.1 ** (step / 100)
np.save("disp.npy", disp.detach().numpy()); print("psnr", (-10 * torch.log(loss) / np.log(10)).item(), "nan", nans); show(m, opt)
