"""Two faults in one: a learned temperature crosses 0 and similarities are divided by it; ELECTRA encoder in float32.
Source: Own: a learned temperature reaches 0."""
import sys
import torch
import torch.nn.functional as F
from transformers import ElectraConfig, ElectraModel

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class SimCSE(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = ElectraModel(ElectraConfig(vocab_size=50, embedding_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32))
        self.temperature = torch.nn.Parameter(torch.tensor(0.25))

    def forward(self, ids):
        a = F.normalize(self.encoder(input_ids=ids).last_hidden_state[:, 0])
        b = F.normalize(self.encoder(input_ids=ids).last_hidden_state[:, 0])
        t = self.temperature.clamp(min=0.01) if CURED else self.temperature
        return F.cross_entropy(a @ b.T / t, torch.arange(len(ids)))  # FAULT


net = SimCSE()
opt = torch.optim.SGD(net.encoder.parameters(), lr=1e-3)
for step in range(4):
    loss = net(torch.randint(50, (4, 7)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        net.temperature -= 0.125  # an own schedule: linear to 0
    print(step, loss.item())
