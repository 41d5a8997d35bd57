# source: HIPS/y0ast VAE issues; emited/VariationalRecurrentNeuralNetwork#2 (log without eps)
import torch, torch.nn as nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)
    def forward(self, x, y):
        p = self.fc(x).softmax(-1)
        p = p[torch.arange(len(y)), y]
        return -torch.log(p).mean()
model = Net()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    x, y = torch.randn(6, 8), torch.randint(0, 4, (6,))
    if step == 2:
        x[3] = x[3].sign() * 4000
        y[3] = int(model.fc(x)[3].argmin())
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
