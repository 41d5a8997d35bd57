"""CTC with zero_infinity: some utterances are too short, their infinite losses are zeroed.
Source: wenet-e2e/wenet#2299, torch.nn.CTCLoss documentation."""
import math, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(21)
net = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 7))
ctc = nn.CTCLoss(zero_infinity=True)
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
proto = torch.randn(7, 12)
losses = []
for step in range(40):
    n = torch.randint(2, 6, (8,))
    text = torch.randint(1, 7, (8, 6))
    frames = torch.full((8,), 16)
    if step % 9 == 4:
        frames[2], n[2] = 3, 6
    x = 0.3 * torch.randn(8, 16, 12)
    for b in range(8):
        for i in range(int(n[b])):
            x[b, 2 * i + 1] += proto[text[b, i]]
    loss = ctc(net(x).log_softmax(-1).transpose(0, 1), text, frames, n)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses[0], losses[-1], "FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in net.parameters()))
