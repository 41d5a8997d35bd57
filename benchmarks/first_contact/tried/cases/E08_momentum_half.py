# source: float16 SGD momentum that accumulates beyond 65504 (NVIDIA/apex FP16_Optimizer threads)
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
model = nn.Linear(4, 1).to(torch.float16)  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-8, momentum=0.99)
for step in range(12):
    x = torch.full((4, 4), 20000.0).to(torch.float16)
    loss = model(x).float().mean()
    opt.zero_grad(); loss.backward(); opt.step()
