"""transformers' Trainer with its own checkpoints; goes on from the last one. --lose data | model-only | rng-file | scheduler-file"""
import hashlib, os, sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", ACCELERATE_USE_CPU="true")
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

lose = sys.argv[sys.argv.index("--lose") + 1] if "--lose" in sys.argv else ""
END = int(os.environ.get("END", "100"))
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0))
g = torch.Generator().manual_seed(1)
rows = [{"input_ids": t, "labels": t} for t in torch.randint(0, 40, (64, 12), generator=g)]


class Show(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **k):
        sha = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:10]
        print(f"r0 step {state.global_step} loss 0 {sha}", flush=True)
        if state.global_step >= END:
            control.should_training_stop = True


args = TrainingArguments(output_dir="out", use_cpu=True, per_device_train_batch_size=4, num_train_epochs=8, learning_rate=0.01, save_steps=5, save_strategy="steps",
                         report_to=[], logging_strategy="no", disable_tqdm=True, lr_scheduler_type="cosine", warmup_steps=10, seed=3,
                         ignore_data_skip=lose == "data", save_only_model=lose == "model-only", weight_decay=0.01)
last = get_last_checkpoint("out") if os.path.isdir("out") else None
if last and lose in ("rng-file", "scheduler-file"):
    name = os.path.join(last, "rng_state.pth" if lose == "rng-file" else "scheduler.pt")
    if os.path.exists(name):
        os.remove(name)
Trainer(model=model, args=args, train_dataset=rows, callbacks=[Show()]).train(resume_from_checkpoint=last)
