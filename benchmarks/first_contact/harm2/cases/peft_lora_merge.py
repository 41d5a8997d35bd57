"""LoRA through peft: trained, merged, unloaded, saved as safetensors; files and weights.

Source: https://github.com/huggingface/peft (README's LoRA example; also peft/pull/3382)
"""
# PRELUDE
from transformers import BertConfig, BertForSequenceClassification
from peft import LoraConfig, get_peft_model
torch.manual_seed(0)
base = BertForSequenceClassification(BertConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=40, num_labels=2))
m = get_peft_model(base, LoraConfig(r=2, lora_alpha=4, target_modules=["query", "value"], lora_dropout=0.1, modules_to_save=["classifier"]))
W(m)
opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=1e-2)
for s in range(4):
    ids = torch.randint(0, 40, (3, 9))
    loss = m(input_ids=ids, labels=ids[:, 0] % 2).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
    print(float(loss.detach()).hex())
m.save_pretrained("adapter")
merged = m.merge_and_unload()
print(M(merged), R())
