"""transformers.Trainer: compute_metrics gives nan, load_best_model_at_end, label smoothing, gradient accumulation, a callback that stops; checkpoints compared."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, TrainerCallback
import transformers
transformers.logging.set_verbosity_error()
transformers.set_seed(54)
cfg = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, max_position_embeddings=20, num_labels=3)
net = BertForSequenceClassification(cfg)
watch(net)
r = torch.Generator().manual_seed(0)
rows = [{"input_ids": torch.randint(1, 50, (n,), generator=r).tolist(), "labels": int(n) % 2} for n in torch.randint(4, 14, (24,), generator=r)]


def collate(b):
    m = max(len(e["input_ids"]) for e in b)
    ids = torch.tensor([e["input_ids"] + [0] * (m - len(e["input_ids"])) for e in b])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": torch.tensor([e["labels"] for e in b])}


def metrics(p):
    with np.errstate(all="ignore"):
        hit = (p.predictions.argmax(1) == p.label_ids).astype(float)
        rec = np.array([hit[p.label_ids == c].sum() / (p.label_ids == c).sum() for c in range(3)])
    return {"recall": float(rec.mean()), "nanrecall": float(np.nanmean(rec)), "corr": float(np.corrcoef(np.ones(3), np.arange(3))[0, 1]) if False else float("nan")}


args = TrainingArguments("out", max_steps=8, per_device_train_batch_size=4, gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=4, save_steps=4,
                         logging_steps=2, logging_nan_inf_filter=True, label_smoothing_factor=0.1, report_to=[], load_best_model_at_end=True, metric_for_best_model="nanrecall",
                         use_cpu=True, disable_tqdm=True, lr_scheduler_type="cosine_with_restarts", warmup_steps=2, max_grad_norm=0.5, seed=54)
losses = []


class Keep(TrainerCallback):
    def on_log(self, a, s, c, logs=None, **k):
        losses.append({k: repr(v) for k, v in logs.items() if "runtime" not in k and "per_second" not in k and "flos" not in k})


import io, contextlib
with contextlib.redirect_stdout(io.StringIO()):
    t = Trainer(net, args, train_dataset=rows, eval_dataset=rows[:9], data_collator=collate, compute_metrics=metrics, callbacks=[Keep()])
    t.train()
for l in losses:
    print(l)
print(dig(t.predict(rows[:5]).predictions), os.path.basename(t.state.best_model_checkpoint or "none"))
import shutil
for d in sorted(os.listdir("out")):
    for f in ("trainer_state.json", "training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
        p = os.path.join("out", d, f)
        if f in ("trainer_state.json", "training_args.bin") and os.path.exists(p):
            os.remove(p)
end(net)
