# opts: --check again:every=1
# truth: healthy (peft LoRA + transformers Trainer, gradient accumulation, linear warmup)
import flips as C, torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from peft import LoraConfig, get_peft_model
torch.manual_seed(0); m = get_peft_model(GPT2LMHeadModel(GPT2Config(vocab_size=60, n_positions=16, n_embd=16, n_layer=2, n_head=2)), LoraConfig(r=4, lora_dropout=0.1, target_modules=["c_attn"], fan_in_fan_out=True))
g = torch.Generator().manual_seed(1); data = [dict(input_ids=(x := torch.randint(0, 60, (12,), generator=g)), labels=x) for _ in range(32)]
Trainer(m, TrainingArguments("o", max_steps=5, per_device_train_batch_size=2, gradient_accumulation_steps=2, report_to=[], logging_steps=5, save_strategy="no", use_cpu=True, warmup_steps=2, seed=1), train_dataset=data).train()
C.finish(m)
