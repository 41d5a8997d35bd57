# source: fairseq-style time-first tokens, embedding row: a nan token in one sample (time x batch)
# planted rows: sample 2 of 4 (dimension 1), time 5 of 9; row 19 of emb.weight
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.lstm, self.head = nn.Embedding(20, 8), nn.LSTM(8, 8), nn.Linear(8, 2)
    def forward(self, ids, y):
        h, _ = self.lstm(self.emb(ids))
        return F.cross_entropy(self.head(h[-1]), y)
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
with torch.no_grad():
    model.emb.weight[19] = float("nan")
# WEIGHT
for step in range(9):
    ids, y = torch.randint(0, 19, (9, 4)), torch.randint(0, 2, (4,))
    if step == 2:
        ids[5, 2] = 19
    # BATCH 1: ids / 0: y
    loss = model(ids, y)
    opt.zero_grad(); loss.backward(); opt.step()
