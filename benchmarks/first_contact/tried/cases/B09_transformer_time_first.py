# source: pytorch/pytorch#24816, #41508: nn.Transformer (time x batch), one sample only padding
# planted rows: 3 of 5 along dimension 1
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.head = nn.Embedding(20, 16), nn.Linear(16, 2)
        self.wq = nn.Linear(16, 48)
    def forward(self, ids, y):
        pad = ids == 0
        q, k, v = self.wq(self.emb(ids)).transpose(0, 1).chunk(3, -1)
        s = (q @ k.transpose(1, 2) / 4).masked_fill(pad.t()[:, None, :], float("-inf"))
        h = s.softmax(-1) @ v
        return F.cross_entropy(self.head(h.mean(1)), y)
model = Net()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    ids, y = torch.randint(1, 20, (7, 5)), torch.randint(0, 2, (5,))
    ids[5:, 0] = 0
    if step == 2:
        ids[:, 3] = 0
    # BATCH 1: ids / 0: y
    loss = model(ids, y)
    opt.zero_grad(); loss.backward(); opt.step()
