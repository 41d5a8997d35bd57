from tiny import *
# HF Trainer: one device, batch 8, against two processes with 2 samples each and 2 accumulation steps; unequal token counts (num_items_in_batch)
import tempfile
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
x, y = next(iter(batches(1, 32, ragged=True)))
from torch.utils.data import SequentialSampler
class Ordered(Trainer):
    def _get_train_sampler(self, *a): return SequentialSampler(self.train_dataset)
model = GPT2LMHeadModel(GPT2Config(vocab_size=V, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
data = [{"input_ids": a, "labels": b} for a, b in zip(x, y)]
two = world > 1
args = TrainingArguments(tempfile.mkdtemp(), use_cpu=True, per_device_train_batch_size=2 if two else 8, gradient_accumulation_steps=2 if two else 1,
    max_steps=4, report_to=[], save_strategy="no", lr_scheduler_type="constant", disable_tqdm=True, average_tokens_across_devices=True)
Ordered(model=model, args=args, train_dataset=data).train()
