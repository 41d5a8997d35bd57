from _training import *
from peft import LoraConfig, get_peft_model
class Tiny(nn.Module):
    def __init__(s): super().__init__(); s.a = nn.Linear(16, 32); s.b = nn.Linear(32, 4)
    def forward(s, x): return s.b(s.a(x).relu())
base = Tiny(); m = get_peft_model(base, LoraConfig(target_modules=["a", "b"], r=4), adapter_name="first")
m.add_adapter("second", LoraConfig(target_modules=["a", "b"], r=4))
m.set_adapter("second")
opt = torch.optim.Adam([p for p in m.parameters() if p.requires_grad], 1e-2)
if not H: m.set_adapter("first")        # for an evaluation of the first task, and nobody switches back
x, y = blobs(2000)
for step in range(200):
    i = torch.randint(2000, (64,)); loss = F.cross_entropy(m(x[i]), y[i]); opt.zero_grad(); loss.backward(); opt.step()
b = [p for n, p in m.named_parameters() if "lora_B.second" in n]
truth(second_lora_B=max(p.abs().max().item() for p in b), loss=loss.item())
