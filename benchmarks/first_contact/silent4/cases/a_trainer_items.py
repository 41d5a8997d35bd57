from _training import *
import tempfile
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
m = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0))
data = []
for k in range(512):
    x = (k * 5 + 7 * torch.arange(16)) % 40; data.append({"input_ids": x, "labels": x})
class T(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels"); out = model(**inputs)
        loss = F.cross_entropy(out.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
        loss = loss / (num_items_in_batch if H else labels[:, 1:].numel())
        return (loss, out) if return_outputs else loss
norms = []
t = T(model=m, train_dataset=data, args=TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, gradient_accumulation_steps=8, num_train_epochs=8, learning_rate=1e-3, logging_steps=1, report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no", max_grad_norm=1.0))
t.train(); g = [h["grad_norm"] for h in t.state.log_history if "grad_norm" in h]
truth(mean_grad_norm=sum(g) / len(g), steps=len(g), first_loss=t.state.log_history[0]["loss"])
