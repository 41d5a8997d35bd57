"""Healthy, 400 steps: transformers' Trainer, LoRA with modules_to_save, 2 accumulation steps, warm-up, evaluation each 100, early low loss; then a merge. STEPS 400"""
import tempfile, torch
from transformers import GPT2Config, GPT2ForSequenceClassification, Trainer, TrainingArguments
from peft import LoraConfig, get_peft_model
torch.set_num_threads(1); torch.manual_seed(0)
class DS(torch.utils.data.Dataset):
    def __init__(self, n, s): g = torch.Generator().manual_seed(s); self.x = torch.randint(1, 40, (n, 8), generator=g); self.y = self.x[:, -1] // 20
    def __len__(self): return len(self.x)
    def __getitem__(self, i): return {"input_ids": self.x[i], "labels": self.y[i]}
m = get_peft_model(GPT2ForSequenceClassification(GPT2Config(vocab_size=40, n_positions=8, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0, pad_token_id=0, num_labels=2)), LoraConfig(r=4, target_modules=["c_attn"], modules_to_save=["score"], fan_in_fan_out=True, lora_dropout=0.05))
a = TrainingArguments(tempfile.mkdtemp(), per_device_train_batch_size=8, gradient_accumulation_steps=2, max_steps=400, warmup_steps=40, learning_rate=2e-3, lr_scheduler_type="cosine", eval_strategy="steps", eval_steps=100, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True, logging_strategy="no")
t = Trainer(model=m, args=a, train_dataset=DS(4000, 1), eval_dataset=DS(64, 2)); r = t.train(); m.merge_and_unload()
print(f"STEPS {r.global_step} loss {r.training_loss:.3f}")
