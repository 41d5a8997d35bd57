"""transformers' Trainer on two gloo ranks by torchrun: DDP, gradient accumulation, evaluation gathered over ranks with a remainder, per-rank random states saved, gradient checkpointing."""
# PRELUDE
import transformers
transformers.utils.logging.disable_progress_bar()
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
class D(torch.utils.data.Dataset):
    def __len__(self): return 22
    def __getitem__(self, i):
        t = torch.randint(0, 30, (8,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": t, "labels": t}
torch.manual_seed(5)
m = GPT2LMHeadModel(GPT2Config(vocab_size=30, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0))
W(m)
a = TrainingArguments(output_dir="out", per_device_train_batch_size=2, per_device_eval_batch_size=3, max_steps=5, gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=3, save_steps=3, report_to=[], disable_tqdm=True, use_cpu=True, ddp_backend="gloo", gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False}, logging_steps=1)
t = Trainer(model=m, args=a, train_dataset=D(), eval_dataset=D(), compute_metrics=lambda p: {"n": float(len(p.predictions)), "h": float(int(H(p.predictions)[:8], 16))})
t.remove_callback(transformers.PrinterCallback)
t.train()
import torch.distributed as dist
out = [None, None]
dist.all_gather_object(out, (M(m), R()))
if dist.get_rank() == 0:
    print(out, [{k: v for k, v in d.items() if "runtime" not in k and "per_second" not in k} for d in t.state.log_history], sorted(os.listdir("out/checkpoint-3")))
