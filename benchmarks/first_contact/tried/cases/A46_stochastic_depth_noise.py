# source: RL exploration noise inside the model (rows left out shift the random numbers): log of a noisy probability
# planted rows: 2 of 12
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.drop = nn.Linear(6, 4), nn.Dropout(0.5)
    def forward(self, x, y):
        h = self.drop(F.relu(self.fc(self.drop(x)))) + 0.01
        return (torch.log(h - 0.01 * (x[:, :1] > 50)) - y[:, None]).square().mean()
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-5)
for step in range(9):
    x, y = torch.randn(12, 6), torch.randn(12)
    if step == 2:
        x[2] = 60.0
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
