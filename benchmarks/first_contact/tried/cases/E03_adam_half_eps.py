# source: discuss.pytorch.org/t/adam-half-precision-nans/1765, pytorch/pytorch#8860, afiaka87/glide-finetune#5
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).to(torch.float16)
with torch.no_grad():
    model[0].bias[3] = -50.0  # a dead unit
model = model  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
for step in range(9):
    x, y = torch.randn(8, 6).to(torch.float16), torch.randint(0, 2, (8,))
    loss = F.cross_entropy(model(x).float(), y)
    opt.zero_grad(); loss.backward(); opt.step()
