"""Healthy, 400 steps: shared layer used 4 times (ALBERT by transformers), two tasks in turns, uncertainty weights in the optimizer, attention pooling with a softmax over dim 0 of a bag, on purpose. STEPS 400"""
import torch, torch.nn.functional as F
from torch import nn
from transformers import AlbertConfig, AlbertModel
torch.set_num_threads(1); torch.manual_seed(0)
class MT(nn.Module):
    def __init__(self): super().__init__(); self.b = AlbertModel(AlbertConfig(vocab_size=40, embedding_size=16, hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=48, max_position_embeddings=12), add_pooling_layer=False); self.tag, self.att, self.bag = nn.Linear(32, 3), nn.Linear(32, 1), nn.Linear(32, 2); self.s = nn.Parameter(torch.zeros(2))
    def forward(self, x, task):
        h = self.b(input_ids=x)[0]
        if task == 0: return self.tag(h)
        h = h[:, 0]; w = self.att(h).softmax(dim=0); return self.bag((w * h).sum(0, keepdim=True))
net = MT(); opt = torch.optim.AdamW(net.parameters(), 1e-3)
for step in range(400):
    x = torch.randint(0, 40, (8, 8)); task = step % 2
    if task == 0: l = F.cross_entropy(net(x, 0).reshape(-1, 3), (x % 3).reshape(-1))
    else: l = F.cross_entropy(net(x, 1), (x[:, 0] == 7).any().long()[None])
    loss = (-net.s[task]).exp() * l + net.s[task]; opt.zero_grad(); loss.backward(); opt.step()
print(f"STEPS 400 loss {loss:.3f}")
