# source: as B17 without a dict: two -inf features of 128, plain tensors
# planted rows: 31, 90 of 128
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 2)
    def forward(self, x, y):
        return F.cross_entropy(self.fc(torch.log1p(x)), y)
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.rand(128, 5), torch.randint(0, 2, (128,))
    if step == 2:
        x[[31, 90], 2] = -1.0
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
