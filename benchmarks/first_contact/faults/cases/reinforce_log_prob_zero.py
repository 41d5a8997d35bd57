"""REINFORCE with -log(softmax[action]): the probability of the sampled old action underflows to 0.
Source: HealthML/active-segmentation#78 (log of a probability of 0), cpnota/autonomous-learning-library#139."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRUCell(6, 12)
        self.head = nn.Linear(12, 4)

    def forward(self, xs):
        h = torch.zeros(1, 12)
        out = []
        for x in xs:
            h = self.gru(x[None], h)
            out.append(self.head(h))
        return torch.cat(out)


net = Policy()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for episode in range(4):
    xs, actions = torch.randn(6, 6), torch.randint(1, 4, (6,))
    logits = net(xs)
    if episode == 2:
        logits = logits + torch.tensor([300.0, 0, 0, 0])  # an expert's prior
    if CURED:
        logp = logits.log_softmax(-1).gather(1, actions[:, None])
    else:
        logp = torch.log(logits.softmax(-1).gather(1, actions[:, None]))  # FAULT
    loss = -(logp.squeeze(1) * torch.randn(6)).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(episode, loss.item())
