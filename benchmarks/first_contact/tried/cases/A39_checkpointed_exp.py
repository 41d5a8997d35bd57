# source: activation checkpointing (transformers gradient_checkpointing threads) around a block whose exp overflows
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from torch.utils.checkpoint import checkpoint
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
    def forward(self, x):
        return x + torch.tanh(torch.exp(self.fc(x)) - 1)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(2)), nn.Linear(8, 2)
    def forward(self, x, y):
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=False)
        return F.cross_entropy(self.head(x), y)
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(9):
    x, y = torch.randn(8, 8), torch.randint(0, 2, (8,))
    if step == 2:
        x[4] = 300 * model.blocks[0].fc.weight.detach()[1].sign()
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
