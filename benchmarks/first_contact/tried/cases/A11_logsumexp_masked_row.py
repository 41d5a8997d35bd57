# source: kmkurn/pytorch-crf issues, pytorch/pytorch#31829 (logsumexp of a row of -inf)
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 5)
    def forward(self, x, mask):
        s = self.fc(x).masked_fill(~mask, float("-inf"))
        return torch.logsumexp(s, dim=-1).mean()
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, mask = torch.randn(8, 8), torch.rand(8, 5) > 0.3
    mask[:, 0] = True
    if step == 2:
        mask[7] = False
    # BATCH 0: x, mask
    loss = model(x, mask)
    opt.zero_grad(); loss.backward(); opt.step()
