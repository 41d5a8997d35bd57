# source: TransformerEngine delayed + cosine attention (Swin v2 style) by hand after a converted Conv1D
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from numscope import precision
from transformers import GPT2Config, GPT2Model
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gpt = GPT2Model(GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2, n_positions=16, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
        self.proj = nn.Linear(16, 16, bias=False)
    def forward(self, ids, gain):
        h = self.proj(self.gpt(input_ids=ids).last_hidden_state[:, -1] * gain)
        u = h / h.norm(dim=-1, keepdim=True)
        return (u @ u.t() - torch.eye(len(u))).square().mean()
model = Net()
precision.convert(model, "delayed")  # MODEL
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(9):
    ids, gain = torch.randint(0, 40, (16, 8)), torch.ones(16, 1)
    if step == 3:
        gain[:] = 1e-6  # the scale of the past flushes all of it
    # BATCH 0: ids, gain
    loss = model(ids, gain)
    opt.zero_grad(); loss.backward(); opt.step()
