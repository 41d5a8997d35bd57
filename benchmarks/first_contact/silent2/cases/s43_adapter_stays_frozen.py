"""LoRA on top of a loaded adapter: the adapter exists and was frozen with everything else, applying LoRA is skipped, and only the value head trains.
Source: https://github.com/X-GenGroup/Flow-Factory/pull/56 (is_trainable=False of PeftModel.from_pretrained does the same)
Truth: the adapter does not move.
Could a tool know: partly. All LoRA parameters of a model in training are frozen; an adapter that is frozen on purpose is possible.
"""
import sys, tempfile, torch, torch.nn.functional as F
from transformers import GPT2Config, GPT2Model
from peft import LoraConfig, PeftModel, get_peft_model
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0); d = tempfile.mkdtemp()
def base(): torch.manual_seed(1); return GPT2Model(GPT2Config(vocab_size=40, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0))
get_peft_model(base(), LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True)).save_pretrained(d)
class Reward(torch.nn.Module):
    def __init__(self): super().__init__(); self.lm = PeftModel.from_pretrained(base(), d, is_trainable=HEALTHY); self.lm.train(); self.v = torch.nn.Linear(32, 1)
    def forward(self, x): return self.v(self.lm(input_ids=x).last_hidden_state[:, -1])[:, 0]
net = Reward(); A = [p for n, p in net.named_parameters() if "lora_B" in n]; first = [p.detach().clone() for p in A]
opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], 3e-3)
for step in range(100):
    g = torch.randint(0, 40, (16, 8)); b = torch.randint(0, 40, (16, 8)); g[:, 2] = 7
    loss = -F.logsigmoid(net(g) - net(b)).mean(); opt.zero_grad(); loss.backward(); opt.step()
print(f"TRUTH adapter moved {max((a - b).abs().max().item() for a, b in zip(A, first)):.5f} loss {loss:.3f}")
