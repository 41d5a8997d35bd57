# huggingface/transformers: Trainer with ignore_data_skip=True, the first batches of the epoch come again (as KempnerInstitute/KempnerForge#51)
import hashlib, os, sys
os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import OPTConfig, OPTForCausalLM, Trainer, TrainingArguments, TrainerCallback
from transformers.trainer_utils import get_last_checkpoint
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 200
class Say(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **k):
        if "loss" in logs: print(state.global_step, repr(logs["loss"]), repr(logs["grad_norm"]), flush=True)
class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **k):
        if state.global_step >= stop: control.should_training_stop = True
torch.manual_seed(15); model = OPTForCausalLM(OPTConfig(vocab_size=50, max_position_embeddings=32, hidden_size=32, ffn_dim=64, num_hidden_layers=1, num_attention_heads=2, word_embed_proj_dim=32))
data = [{"input_ids": t, "labels": t} for t in torch.randint(0, 50, (200, 12), generator=torch.Generator().manual_seed(1))]
args = TrainingArguments("runs", max_steps=200, per_device_train_batch_size=4, save_steps=5, logging_steps=1, learning_rate=3e-3, report_to=[], disable_tqdm=True, use_cpu=True, ignore_data_skip=fault, lr_scheduler_type="constant", seed=3)
trainer = Trainer(model, args, train_dataset=data, callbacks=[Say(), Stop()])
trainer.train(resume_from_checkpoint=get_last_checkpoint("runs") if os.path.isdir("runs") else None)
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16])
