# source: two faults at once: a nan row in the batch and a nan row in a weight; neither alone cures
# planted rows: 3 of 8 and row 5 of fc.weight
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(5, 8), nn.Linear(8, 2)
    def forward(self, x, y):
        return F.cross_entropy(self.head(F.relu(self.fc(x))), y)
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.randn(8, 5), torch.randint(0, 2, (8,))
    if step == 2:
        x[3] = float("nan")
        model.fc.weight.data[5] = float("nan")
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
