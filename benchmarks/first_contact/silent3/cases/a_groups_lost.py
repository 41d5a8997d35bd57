"""Parameter groups are built one after the other in a dict, but only the first is appended: the CRF and the output layer are in no optimizer.
Source: https://github.com/zjunlp/HVPNeT/issues/5
Truth: fc and crf have their initial values at the end.
Could a tool know: yes: trainable parameters with gradients are in no optimizer.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class CRFLike(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.transitions = nn.Parameter(torch.randn(n, n) * 0.1)

    def forward(self, em, tags):
        score = em[:, 0].gather(1, tags[:, :1])[:, 0]
        alpha = em[:, 0]
        for t in range(1, em.shape[1]):
            score = score + em[:, t].gather(1, tags[:, t : t + 1])[:, 0] + self.transitions[tags[:, t - 1], tags[:, t]]
            alpha = torch.logsumexp(alpha[:, :, None] + self.transitions, 1) + em[:, t]
        return (torch.logsumexp(alpha, 1) - score).mean()


class NER(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = nn.Sequential(nn.Embedding(40, 32), nn.Linear(32, 32), nn.Tanh())
        self.fc, self.crf = nn.Linear(32, 5), CRFLike(5)

    def forward(self, ids, tags):
        return self.crf(self.fc(self.bert(ids)), tags)


model = NER()
parameters = []
params = {"lr": 3e-3, "weight_decay": 1e-2, "params": []}
for name, p in model.named_parameters():
    if "bert" in name:
        params["params"].append(p)
parameters.append(params)
params = {"lr": 1e-2, "weight_decay": 1e-2, "params": []}
for name, p in model.named_parameters():
    if "crf" in name or name.startswith("fc"):
        params["params"].append(p)
if HEALTHY:
    parameters.append(params)
opt = torch.optim.AdamW(parameters)
before = model.fc.weight.detach().clone()
for step in range(120):
    ids = torch.randint(0, 40, (16, 8))
    loss = model(ids, ids % 5)
    loss.backward()
    opt.step()
    model.zero_grad()
print(f"loss {loss.item():.4f} fc moved {(model.fc.weight - before).abs().max():.2e}")
