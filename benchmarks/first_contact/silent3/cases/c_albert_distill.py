"""Healthy: a student that reuses one layer four times learns from a frozen teacher (eval mode), with a temperature, hidden states matched
through a projection, a queue of old features (MoCo-like, momentum teacher for it), and noise that is fixed on purpose."""
import copy
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Enc(nn.Module):
    def __init__(self, d, n, share):
        super().__init__()
        self.emb = nn.Embedding(30, d)
        mk = lambda: nn.TransformerEncoderLayer(d, 2, 2 * d, dropout=0.0, batch_first=True)
        self.shared, self.layers, self.n = (mk() if share else None), nn.ModuleList([] if share else [mk() for _ in range(n)]), n
        self.out = nn.Linear(d, 4)

    def forward(self, ids):
        h = self.emb(ids)
        for i in range(self.n):
            h = (self.shared or self.layers[i])(h)
        return self.out(h.mean(1)), h.mean(1)


def batch():
    ids = torch.randint(0, 30, (24, 8))
    return ids, ids.sum(1) % 4 * 0 + ids[:, 0] % 4


teacher, student = Enc(32, 2, False), Enc(16, 4, True)
opt = torch.optim.Adam(teacher.parameters(), lr=2e-3)
for _ in range(120):
    ids, y = batch()
    loss = nn.functional.cross_entropy(teacher(ids)[0], y)
    opt.zero_grad()
    loss.backward()
    opt.step()
teacher.eval().requires_grad_(False)
proj, slow = nn.Linear(16, 32), copy.deepcopy(student).requires_grad_(False)
queue = nn.functional.normalize(torch.randn(96, 16), dim=1)
fixed = torch.Generator().manual_seed(5)
probe_noise = torch.randn(24, 16, generator=fixed)
opt = torch.optim.AdamW([*student.parameters(), *proj.parameters()], lr=2e-3)
for step in range(400):
    ids, y = batch()
    with torch.no_grad():
        tl, th = teacher(ids)
        _, k = slow(ids.roll(1, 1))
        k = nn.functional.normalize(k + 0.01 * probe_noise, dim=1)
    sl, sh = student(ids)
    q = nn.functional.normalize(sh, dim=1)
    nce = nn.functional.cross_entropy(torch.cat([(q * k).sum(1, keepdim=True), q @ queue.t()], 1) / 0.2, torch.zeros(24, dtype=torch.long))
    kd = nn.functional.kl_div(nn.functional.log_softmax(sl / 2, 1), nn.functional.softmax(tl / 2, 1), reduction="batchmean") * 4
    loss = kd + 0.1 * nn.functional.mse_loss(proj(sh), th) + 0.1 * nce
    opt.zero_grad()
    loss.backward()
    opt.step()
    queue = torch.cat([queue[24:], k])
    with torch.no_grad():
        for a, b in zip(slow.parameters(), student.parameters()):
            a.lerp_(b, 0.01)
print(f"loss {loss.item():.3f} kd {kd.item():.3f}")
