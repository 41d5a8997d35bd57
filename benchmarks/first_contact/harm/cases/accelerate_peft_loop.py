"""accelerate with accumulation and a LoRA adapter by peft on a tiny BERT; adapter saved as safetensors, merged, trained on.

source: huggingface/diffusers PR 14285 (hooks and signatures); huggingface/accelerate docs
meta: {"limit": 120, "compare": ["status", "stdout", "files", "left"], "ignore": ["adapter/README.md"]}
"""
import os
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.simplefilter("ignore")
import torch
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from transformers import BertConfig, BertForSequenceClassification
from fcw import grads, rng, say, seed, sha, watch, weights

seed(307)
base = BertForSequenceClassification(BertConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=60, max_position_embeddings=20))
model = get_peft_model(base, LoraConfig(r=2, target_modules=["query", "value"], lora_dropout=0.1, modules_to_save=["classifier"]))
watch(model)
acc = Accelerator(cpu=True, gradient_accumulation_steps=2)
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2)
data = torch.utils.data.DataLoader([{"input_ids": torch.randint(0, 60, (8,)), "labels": i % 2} for i in range(16)], 4, shuffle=True)
sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, 8)
model, opt, data, sched = acc.prepare(model, opt, data, sched)
for epoch in range(2):
    for batch in data:
        with acc.accumulate(model):
            loss = model(**batch).loss
            acc.backward(loss)
            if acc.sync_gradients:
                acc.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
        say(loss.item().hex())
acc.unwrap_model(model).save_pretrained("adapter")
merged = acc.unwrap_model(model).merge_and_unload()
merged.eval()
say(sha(merged(torch.ones(1, 5, dtype=torch.long)).logits), sha(weights(model)), rng())
