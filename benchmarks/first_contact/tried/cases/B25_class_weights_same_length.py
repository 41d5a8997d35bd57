# source: weighted cross entropy with as many classes as samples: the weight vector is an input too
# planted rows: 2 of 8
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 8)
    def forward(self, x, y, weight):
        return F.cross_entropy(self.fc(torch.sqrt(x)), y, weight=weight)
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y, weight = torch.rand(8, 5) + 0.1, torch.randint(0, 8, (8,)), torch.rand(8) + 0.5
    if step == 2:
        x[2, 1] = -1.0
    # BATCH 0: x, y
    loss = model(x, y, weight)
    opt.zero_grad(); loss.backward(); opt.step()
