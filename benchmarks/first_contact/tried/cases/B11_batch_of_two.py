# source: pytorch forum: detection with 2 images a GPU, one image broken
# planted rows: 1 of 2
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 4)
    def forward(self, x, boxes):
        return F.smooth_l1_loss(self.head(F.relu(self.c(x)).mean((2, 3))), boxes)
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.rand(2, 3, 8, 8), torch.rand(2, 4)
    if step == 2:
        x[1] = float("nan")
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
