# source: schedulers that divide by zero steps (numpy: 1e-3 / 0 = inf), huggingface/transformers get_scheduler threads
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.randn(8, 6), torch.randint(0, 2, (8,))
    for g in opt.param_groups:
        g["lr"] = 1e-2 if step != 2 else float("inf")
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
