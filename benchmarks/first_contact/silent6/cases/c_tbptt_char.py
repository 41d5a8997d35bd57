"""Healthy: truncated BPTT over one long stream: hidden states are carried and detached, batches come in the stream's order each epoch; a
second optimizer for vectors.  480 steps."""
import sys, math, copy, random, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); random.seed(0); torch.set_num_threads(1)
s = (torch.arange(8 * 481) * 7 // 3 % 11); s = s.view(8, -1); e, r, o = nn.Embedding(11, 16), nn.LSTM(16, 48, batch_first=True), nn.Linear(48, 11); m = nn.ModuleList([e, r, o])
mats = [p for p in m.parameters() if p.ndim == 2]; rest = [p for p in m.parameters() if p.ndim < 2]; o1, o2 = torch.optim.SGD(mats, .5, momentum=.9), torch.optim.Adam(rest, 2e-3); h = None
for ep in range(12):
    h = None
    for i in range(0, 480, 12):
        x, y = s[:, i:i + 12], s[:, i + 1:i + 13]; z, h = r(e(x), h); h = tuple(t.detach() for t in h); loss = F.cross_entropy(o(z).flatten(0, 1), y.flatten()); o1.zero_grad(); o2.zero_grad(); loss.backward(); nn.utils.clip_grad_norm_(m.parameters(), .5); o1.step(); o2.step()
    print(ep, loss.item())
