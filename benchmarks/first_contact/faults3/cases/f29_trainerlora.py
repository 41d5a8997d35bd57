"""Llama (tiny configuration) with LoRA under the Hugging Face Trainer; one example's answer was cut off, so all labels are -100.
Source: OpenRLHF/OpenRLHF#583, nvidia-cosmos/cosmos-rl#155, pytorch/pytorch#70348."""
import sys, math, tempfile
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, TrainerCallback

torch.set_num_threads(1)
torch.manual_seed(29)
CURED = "--cured" in sys.argv


def example(i, length=24):
    prompt = length + 4 if i == 13 else int(torch.randint(6, 14, ()))
    ids = torch.randint(3, 128, (length,))
    labels = ids.clone()
    labels[:prompt] = -100
    return {"input_ids": ids, "labels": labels, "attention_mask": torch.ones_like(ids)}


data = [example(i) for i in range(20)]
if CURED:
    data = [d for d in data if (d["labels"] != -100).any()]


class LM(LlamaForCausalLM):
    def forward(self, input_ids=None, attention_mask=None, labels=None, **kwargs):
        out = super().forward(input_ids=input_ids, attention_mask=attention_mask)
        if labels is not None:
            logits = out.logits[:, :-1].flatten(0, 1)
            out.loss = torch.nn.functional.cross_entropy(logits, labels[:, 1:].flatten())  # FAULT
        return out


config = LlamaConfig(vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
model = get_peft_model(LM(config), LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]))
losses = []


class Keep(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        losses.extend([logs["loss"]] if "loss" in logs else [])


args = TrainingArguments(tempfile.mkdtemp(), per_device_train_batch_size=1, max_steps=16, learning_rate=5e-3, logging_steps=1, logging_nan_inf_filter=False,
                         report_to=[], save_strategy="no", use_cpu=True, seed=29, disable_tqdm=True, dataloader_num_workers=0)
trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[Keep()], data_collator=lambda b: {k: torch.stack([d[k] for d in b]) for k in b[0]})
trainer.train()
print(losses)
print("FINITE", all(math.isfinite(float(v)) for v in losses) and all(bool(p.isfinite().all()) for p in model.parameters()))
