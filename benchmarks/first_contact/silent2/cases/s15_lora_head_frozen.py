"""LoRA by peft on a small BERT classifier: modules_to_save=target_modules.append("classifier") is None, so the new head is frozen at random.
Source: https://github.com/huggingface/peft/issues/577
Truth: the classifier's own weight does not move (its low-rank update does).
Could a tool know: partly. A freshly initialized, frozen head can be intended (random features); peft freezes all by design.
"""
import sys, torch
from transformers import BertConfig, BertForSequenceClassification
from peft import LoraConfig, get_peft_model
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
base = BertForSequenceClassification(BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, max_position_embeddings=16, num_labels=3))
targets = ["query", "value"]
if HEALTHY: cfg = LoraConfig(r=4, target_modules=targets, modules_to_save=["classifier"], lora_dropout=0.05)
else: cfg = LoraConfig(r=4, target_modules=targets, lora_dropout=0.05, modules_to_save=targets.append("pooler.dense"))
model = get_peft_model(base, cfg)
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 5e-3)
head = [p for n, p in model.named_parameters() if "classifier" in n and n.endswith("weight") and ("modules_to_save" in n or not HEALTHY)][0]
first = head.detach().clone()
for step in range(100):
    x = torch.randint(0, 60, (16, 10)); y = (x[:, 1] // 20)
    out = model(input_ids=x, attention_mask=torch.ones_like(x), labels=y)
    opt.zero_grad(); out.loss.backward(); opt.step()
print(f"TRUTH head moved {(head - first).abs().max():.4f} loss {out.loss:.3f}")
