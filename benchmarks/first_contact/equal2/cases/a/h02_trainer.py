# exact: Trainer with dropout, accumulation and a cosine schedule, resume_from_checkpoint
import hashlib, os, sys
os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, TrainerCallback
from transformers.trainer_utils import get_last_checkpoint
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 200
class Say(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **k):
        if "loss" in logs: print(state.global_step, repr(logs["loss"]), repr(logs["grad_norm"]), flush=True)
class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **k):
        if state.global_step >= stop: control.should_training_stop = True
torch.manual_seed(15); model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=1, n_head=2))
data = [{"input_ids": t, "labels": t} for t in torch.randint(0, 50, (200, 12), generator=torch.Generator().manual_seed(1))]
args = TrainingArguments("runs", max_steps=200, per_device_train_batch_size=4, save_steps=5, logging_steps=1, learning_rate=3e-3, report_to=[], disable_tqdm=True, use_cpu=True, gradient_accumulation_steps=2, lr_scheduler_type="cosine", warmup_steps=3, seed=3)
trainer = Trainer(model, args, train_dataset=data, callbacks=[Say(), Stop()])
trainer.train(resume_from_checkpoint=get_last_checkpoint("runs") if os.path.isdir("runs") else None)
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16])
