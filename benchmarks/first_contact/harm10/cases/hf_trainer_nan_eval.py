#: what: transformers' Trainer: a tiny GPT-2, eval batches whose labels are all -100 (eval_loss nan), compute_metrics with nan, load_best_model_at_end by another metric, resumed from a checkpoint
#: benign: nan eval_loss and metric
#: source: https://github.com/pytorch/pytorch/issues/75181
# PRELUDE
import warnings, json; warnings.filterwarnings("ignore"); os.environ["TQDM_DISABLE"] = "1"
import transformers; transformers.logging.set_verbosity_error(); transformers.utils.logging.disable_progress_bar()
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
m = GPT2LMHeadModel(GPT2Config(vocab_size=30, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)); watch(m)
mk = lambda n, ign: [dict(input_ids=(t := torch.randint(0, 30, (8,))), labels=torch.full((8,), -100) if ign(i) else t.clone()) for i in range(n)]
tr, ev = mk(24, lambda i: i % 5 == 0), mk(6, lambda i: i < 2)
def cm(p): lg, y = p; k = y[:, 1:] != -100; acc = (lg.argmax(-1)[:, :-1] == y[:, 1:]).sum(1) / np.where(k.sum(1) == 0, np.nan, k.sum(1)); return {"acc": float(np.nanmean(acc)), "first": float(acc[0])}
a = TrainingArguments("out", num_train_epochs=2, per_device_train_batch_size=4, per_device_eval_batch_size=2, eval_strategy="epoch", save_strategy="epoch", logging_steps=2, report_to=[], load_best_model_at_end=True, metric_for_best_model="acc", use_cpu=True, seed=1, gradient_accumulation_steps=2, disable_tqdm=True, learning_rate=1e-2)
t = Trainer(m, a, train_dataset=tr, eval_dataset=ev, compute_metrics=cm)
import contextlib, io
with contextlib.redirect_stdout(io.StringIO()): r = t.train(); e = t.evaluate()
print(r.training_loss, {k: v for k, v in e.items() if "runtime" not in k and "per_second" not in k}); print([{k: v for k, v in h.items() if k in ("loss", "eval_loss", "eval_acc", "eval_first", "grad_norm", "step")} for h in t.state.log_history]); print(sorted(os.listdir("out"))); show(m)
import shutil; shutil.rmtree("out")
