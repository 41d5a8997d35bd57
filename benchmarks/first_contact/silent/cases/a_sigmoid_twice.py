"""The model ends in sigmoid and the loss is binary_cross_entropy_with_logits.

Source: https://github.com/YXNTU/GeneralDyG/issues/6
Truth: scores lie in [0.5, 0.73]; the loss of the twin is far lower
Could a tool know: yes: the logits all lie in [0, 1] and come from a sigmoid
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.classifier = nn.Linear(32, 1)
        self.sigmoid = nn.Sigmoid()

    def forward(self, tokens):
        out = self.classifier(self.encoder(self.embed(tokens)).mean(1))
        return (out if HEALTHY else self.sigmoid(out)).squeeze(-1)


model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
losses = []
for step in range(250):
    tokens = torch.randint(0, 50, (32, 12))
    y = ((tokens < 10).sum(1) > 2).float()
    loss = F.binary_cross_entropy_with_logits(model(tokens), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
print("end: mean of last 20 losses", round(sum(losses[-20:]) / 20, 4))
