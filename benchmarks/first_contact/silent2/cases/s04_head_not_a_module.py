"""Small GPT whose final linear layer is a plain Python class (not nn.Module): its weight is in no parameters() and is never trained.
Source: https://github.com/EleutherAI/gpt-neox/pull/267
Truth: the head's weight is bitwise what it was.
Could a tool know: yes. A leaf with requires_grad gets a gradient each step, and no optimizer has it.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
V, D, T = 20, 32, 16

class FinalLinear(nn.Module if HEALTHY else object):
    def __init__(self, d, v):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(v, d) * 0.3)
    def __call__(self, x):
        return F.linear(x, self.weight)

class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, D), nn.Embedding(T, D)
        self.blocks = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 2, 64, 0.0, batch_first=True), 2, enable_nested_tensor=False)
        self.final = FinalLinear(D, V)
    def forward(self, x):
        m = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.final(self.blocks(self.tok(x) + self.pos(torch.arange(x.shape[1])), mask=m))

model = GPT(); first = model.final.weight.detach().clone()
opt = torch.optim.AdamW(model.parameters(), 2e-3)
for step in range(120):
    s = torch.randint(0, V, (16, 1)); seq = (s + torch.arange(T + 1) * torch.randint(1, 4, (16, 1))) % V
    logits = model(seq[:, :-1]); loss = F.cross_entropy(logits.reshape(-1, V), seq[:, 1:].reshape(-1))
    opt.zero_grad(); loss.backward(); opt.step()
print(f"TRUTH head moved {(model.final.weight - first).abs().max():.4f} loss {loss:.3f}")
