# source: as C01, from a checkpoint whose Adam state is nan in that row too (hiyouga/LlamaFactory resume threads)
# planted: row 12 of emb.weight and of exp_avg
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.gru, self.head = nn.Embedding(20, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 20)
    def forward(self, ids):
        return F.cross_entropy(self.head(self.gru(self.emb(ids))[0])[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
model = Net()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
model(torch.randint(0, 12, (4, 6))).backward()
opt.step()
with torch.no_grad():
    model.emb.weight[12] = float("nan")
    opt.state[model.emb.weight]["exp_avg"][12] = float("nan")
# WEIGHT
for step in range(9):
    ids = torch.randint(0, 12, (4, 6))
    if step >= 2:
        ids[0, 0] = 12
    # BATCH 0: ids
    loss = model(ids)
    opt.zero_grad(); loss.backward(); opt.step()
