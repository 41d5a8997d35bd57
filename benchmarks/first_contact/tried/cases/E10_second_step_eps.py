# source: E03 with a foreach optimizer and a later step (a unit dies at step 3), eps=1e-8 in float16
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).to(torch.float16)  # MODEL
opt = torch.optim.RMSprop(model.parameters(), lr=1e-3, eps=0.0, alpha=0.0, foreach=True)
for step in range(9):
    x, y = torch.randn(8, 6).to(torch.float16), torch.randint(0, 2, (8,))
    if step == 3:
        with torch.no_grad():
            model[0].bias[3] = -50.0
    loss = F.cross_entropy(model(x).float(), y)
    opt.zero_grad(); loss.backward(); opt.step()
