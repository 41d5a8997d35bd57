# what: PEFT: two LoRA adapters switched, disabled, merged and unmerged, weighted combination, DoRA, saved files, in one training
# cmp: status stdout files left
# PRELUDE
import warnings; warnings.simplefilter("ignore")
from peft import LoraConfig, get_peft_model
class Base(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)
    def forward(self, x): return self.b(torch.tanh(self.a(x)))
torch.manual_seed(0); base = Base(); W(base); m = get_peft_model(base, LoraConfig(r=2, target_modules=["a", "b"], lora_dropout=.1)); m.add_adapter("two", LoraConfig(r=3, target_modules=["a"], use_dora=True))
for s in range(6):
    m.set_adapter("default" if s % 2 else "two"); opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=.02); print(train(m, opt, 2, 2 * s))
    with m.disable_adapter(), torch.no_grad(): print(H(m(batch(50)[0])))
    m.merge_adapter(); m.eval(); print(H(m(batch(51)[0]).detach())); m.unmerge_adapter(); m.train()
m.add_weighted_adapter(["default", "default"], [.5, .3], "mix", combination_type="linear"); m.set_adapter("mix"); print(H(m(batch(9)[0]).detach())); m.save_pretrained("ad", selected_adapters=["default", "two"]); u = m.merge_and_unload(); print(H(dict(u.state_dict())), M(m), R())
