# source: tutorial loops: the model gives logits, the loss and its labels are the script's; a nan row
# planted rows: 6 of 16
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.randn(16, 5), torch.randint(0, 3, (16,))
    if step == 2:
        x[6, 0] = float("inf")
    # BATCH 0: x, y
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
