"""Self-distillation of a masked language model: the teacher is never set to eval, so its targets have dropout.
Source: https://github.com/yxuansu/TaCL/issues/11 (also vrvlive/knowlege-distillation issue 2)
Truth: two teacher outputs for one batch differ.
Could a tool know: yes/partly. A module that no optimizer trains is called without gradients, in train mode, with active dropout.
"""
import sys, copy, torch, torch.nn.functional as F
from transformers import BertConfig, BertModel
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
cfg = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, max_position_embeddings=16)
teacher = BertModel(cfg, add_pooling_layer=False); student = copy.deepcopy(teacher)
if HEALTHY: teacher.eval()
for p in teacher.parameters(): p.requires_grad = False
opt = torch.optim.AdamW(student.parameters(), 1e-3)
for step in range(100):
    x = torch.randint(2, 50, (16, 10)); m = torch.rand(16, 10) < 0.3; m[:, 0] = True
    with torch.no_grad(): t = F.normalize(teacher(x)[0], dim=-1)
    s = F.normalize(student(x.masked_fill(m, 1))[0], dim=-1); loss = F.cross_entropy((s @ t.transpose(1, 2))[m] / 0.1, torch.arange(10).expand(16, 10)[m])
    opt.zero_grad(); loss.backward(); opt.step()
with torch.no_grad(): d = (teacher(x)[0] - teacher(x)[0]).abs().max()
print(f"TRUTH two teacher outputs differ by {d:.3f} loss {loss:.3f}")
