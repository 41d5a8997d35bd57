# source: NVIDIA/apex static loss scale threads: 2**20 with a float16 model
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)).to(torch.float16)  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
SCALE = 2.0 ** 14
for step in range(9):
    x, y = torch.randn(6, 8).to(torch.float16), torch.randint(0, 4, (6,))
    if step == 2:
        x = x * 60
    # BATCH 0: x, y
    loss = F.cross_entropy(model(x).float(), y)
    opt.zero_grad(); (loss * SCALE).backward()
    for p in model.parameters():
        p.grad.div_(SCALE)
    opt.step()
