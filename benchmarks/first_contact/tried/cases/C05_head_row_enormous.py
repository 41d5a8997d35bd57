# source: pytorch forum: a corrupted checkpoint row of 1e38 in lm_head
# planted: row 7 of head.weight (1e38, float32)
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.head = nn.Embedding(20, 16), nn.Linear(16, 20, bias=False)
    def forward(self, ids, y):
        return F.cross_entropy(self.head(4 * self.emb(ids)), y)
model = LM()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
with torch.no_grad():
    model.head.weight[7] = 1e38
# WEIGHT
for step in range(9):
    ids, y = torch.randint(0, 20, (8,)), torch.randint(0, 7, (8,))
    # BATCH 0: ids, y
    loss = model(ids, y)
    opt.zero_grad(); loss.backward(); opt.step()
