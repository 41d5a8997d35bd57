"""self.embedding.from_pretrained(vectors) is called as if it loaded: it is a class method, and its result is dropped.
Source: https://github.com/fenchri/edge-oriented-graph/issues/12
Truth: the embedding has nothing to do with the vectors.
Could a tool know: partly: a class method's new module is thrown away at once (a rule of "setting without effect").
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
vectors = torch.randn(100, 24)


class EmbedLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 24)
        if HEALTHY:
            self.embedding = nn.Embedding.from_pretrained(vectors, freeze=False)
        else:
            self.embedding.from_pretrained(vectors, freeze=False)

    def forward(self, ids):
        return self.embedding(ids)


class Relation(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.gru, self.out = EmbedLayer(), nn.GRU(24, 24, batch_first=True), nn.Linear(24, 3)

    def forward(self, ids):
        return self.out(self.gru(self.emb(ids))[1][-1])


model = Relation()
d = (model.emb.embedding.weight.detach() - vectors).abs().max()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
w = torch.randn(24, 3)
for step in range(100):
    ids = torch.randint(0, 100, (32, 6))
    loss = nn.functional.cross_entropy(model(ids), (vectors[ids].mean(1) @ w).argmax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.4f} distance from the vectors at the start {d:.3f}")
