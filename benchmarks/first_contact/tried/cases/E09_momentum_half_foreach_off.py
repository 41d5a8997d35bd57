# source: as E08 with foreach=False and more elements (NVIDIA/apex FP16_Optimizer threads)
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
model = nn.Linear(8, 3).to(torch.float16)  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-8, momentum=0.9, foreach=False)
for step in range(12):
    x = torch.full((4, 8), 30000.0).to(torch.float16)
    loss = model(x).float().sum() / 4
    opt.zero_grad(); loss.backward(); opt.step()
