# source: warner-benjamin/optimi#15 (grad^2 leaves float16)
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)).to(torch.float16)  # MODEL
opt = torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.5, eps=1e-4)
for step in range(9):
    x, y = torch.randn(8, 6).to(torch.float16), torch.randn(8).to(torch.float16)
    if step == 2:
        pass
    loss = (model(x).squeeze(-1).float() - y.float()).abs().mean() * (4000 if step == 2 else 1)
    opt.zero_grad(); loss.backward(); opt.step()
