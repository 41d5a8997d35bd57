# source: abhi1kumar/DEVIANT#2 (bad images); conv net with BatchNorm2d
# planted rows: 5 of 16
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.b, self.head = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Linear(6, 4)
    def forward(self, images, labels):
        return F.cross_entropy(self.head(F.relu(self.b(self.c(images))).mean((2, 3))), labels)
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    images, labels = torch.rand(16, 3, 8, 8), torch.randint(0, 4, (16,))
    if step == 2:
        images[5, 1, 2, 2] = float("inf")
    # BATCH 0: images, labels
    loss = model(images=images, labels=labels)
    opt.zero_grad(); loss.backward(); opt.step()
