# what: Hugging Face Trainer: compute_metrics gives nan, nan labels filtered, best checkpoint by it, logs and resume from checkpoint
# benign: yes
# watch: no
# cmp: status stdout left
# PRELUDE
import warnings; warnings.simplefilter("ignore")
import transformers; transformers.logging.set_verbosity_error()
from transformers import Trainer, TrainingArguments, BertConfig, BertForSequenceClassification, set_seed
set_seed(1); m = BertForSequenceClassification(BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, max_position_embeddings=16, num_labels=2, problem_type="regression")); W(m)
class D(torch.utils.data.Dataset):
    def __len__(self): return 12
    def __getitem__(self, i): g = torch.Generator().manual_seed(i); return {"input_ids": torch.randint(0, 30, (8,), generator=g), "labels": torch.randn(2, generator=g)}
def metrics(p): return {"corr": float(np.corrcoef(p.predictions[:, 0] * 0, p.label_ids[:, 0])[0, 1]), "m": float(p.predictions.mean())}
np.seterr(all="ignore")
a = lambda n: TrainingArguments("out", num_train_epochs=n, per_device_train_batch_size=4, logging_steps=1, eval_strategy="epoch", save_strategy="epoch", report_to=[], use_cpu=True, disable_tqdm=True, seed=3, logging_nan_inf_filter=True, save_total_limit=2)
import io, contextlib
with contextlib.redirect_stdout(io.StringIO()): t = Trainer(m, a(2), train_dataset=D(), eval_dataset=D(), compute_metrics=metrics); t.train()
keep = lambda h: [{k: v for k, v in r.items() if k in ("loss", "grad_norm", "eval_loss", "eval_corr", "eval_m")} for r in h]
print(keep(t.state.log_history), M(m), R())
with contextlib.redirect_stdout(io.StringIO()): t2 = Trainer(m, a(3), train_dataset=D(), eval_dataset=D(), compute_metrics=metrics); t2.train(resume_from_checkpoint=True)
print(keep(t2.state.log_history)[-2:], M(m), sorted(os.listdir("out")))
