# source: a row of 6e4 in a float16 linear layer, with an inf momentum
# planted: row 2 of 0.weight and momentum_buffer
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).to(torch.float16)  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
F.cross_entropy(model(torch.randn(4, 6).half()).float(), torch.zeros(4).long()).backward()
opt.step()
with torch.no_grad():
    model[0].weight[2] = 60000.0
    opt.state[model[0].weight]["momentum_buffer"][2] = float("inf")
# WEIGHT
for step in range(9):
    x, y = torch.randn(8, 6).half(), torch.randint(0, 3, (8,))
    loss = F.cross_entropy(model(x).float(), y)
    opt.zero_grad(); loss.backward(); opt.step()
