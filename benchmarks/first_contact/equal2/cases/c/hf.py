# transformers' Trainer: one process, accumulation, 2 ranks; --do localtokens: average_tokens_across_devices=False (huggingface/transformers#34242)
import argparse, hashlib, os
os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, TrainerCallback
a = argparse.ArgumentParser(); a.add_argument("--do", default=""); a.add_argument("--batch", type=int, default=8); a.add_argument("--accumulate", type=int, default=1); a.add_argument("--steps", type=int, default=20); a = a.parse_args()
class Say(TrainerCallback):
    def on_log(self, args, state, control, logs=None, model=None, **k):
        if "loss" in logs and state.is_world_process_zero: print(state.global_step - 1, repr(logs["loss"]), repr(logs["grad_norm"]), hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:12], flush=True)
torch.manual_seed(33); model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0, attn_pdrop=0, embd_pdrop=0))
draw = torch.Generator().manual_seed(1); data = []
for _ in range(256): t = torch.randint(0, 40, (10,), generator=draw); l = t.clone(); l[int(torch.randint(3, 10, (1,), generator=draw)):] = -100; data.append({"input_ids": t, "labels": l})
class Plain(Trainer):
    def _get_train_sampler(self, *x): return torch.utils.data.SequentialSampler(self.train_dataset)
args = TrainingArguments("unused", max_steps=a.steps, per_device_train_batch_size=a.batch, gradient_accumulation_steps=a.accumulate, save_strategy="no", logging_steps=1, learning_rate=1e-2, optim="adamw_torch", max_grad_norm=0.0 if a.do != "clip" else 1.0, lr_scheduler_type="constant", report_to=[], disable_tqdm=True, use_cpu=True, average_tokens_across_devices=a.do != "localtokens")
Plain(model, args, train_dataset=data, callbacks=[Say()]).train()
