import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.head = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.net(x)[0][:, -1])


model = Net()
with torch.no_grad():
    model.net.weight_hh_l0[9] = float("nan")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(6):
    loss = F.cross_entropy(model(torch.randn(4, 5, 4)), torch.randint(0, 2, (4,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
