# source: pytorch/pytorch#6394, adambielski/siamese-triplet: identical images of a pair, several inputs
# planted rows: 9 of 20
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, 4)
    def forward(self, left, right, *, target):
        d = (self.net(left) - self.net(right)).pow(2).sum(-1).sqrt()
        return (d - target).abs().mean()
model = Net()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    x, b, y = torch.randn(20, 6), torch.randn(20, 6), torch.rand(20)
    if step == 2:
        b[9] = x[9]
    # BATCH 0: x, b, y
    loss = model(x, b, target=y)
    opt.zero_grad(); loss.backward(); opt.step()
