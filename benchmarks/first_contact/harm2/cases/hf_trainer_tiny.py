"""transformers' Trainer: two epochs, evaluation, saved model and log history (without times).

Source: https://github.com/huggingface/transformers (examples/pytorch/text-classification)
"""
# PRELUDE
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, TrainerCallback
import transformers
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.manual_seed(0)
m = BertForSequenceClassification(BertConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=40, num_labels=2))
data = [dict(input_ids=[(i * k) % 40 for k in range(6)], labels=i % 2) for i in range(1, 25)]
args = TrainingArguments("o", num_train_epochs=2, per_device_train_batch_size=4, logging_steps=2, report_to=[], disable_tqdm=True, use_cpu=True, save_strategy="no", eval_strategy="epoch", seed=5, gradient_accumulation_steps=2, dataloader_num_workers=0)
class Log(TrainerCallback):
    def on_log(self, *a, **k): pass
t = Trainer(m, args, train_dataset=data, eval_dataset=data[:8], callbacks=[Log()])
import io, contextlib
with contextlib.redirect_stdout(io.StringIO()):
    t.train()
for h in t.state.log_history:
    print({k: (float(v).hex() if isinstance(v, float) else v) for k, v in h.items() if "runtime" not in k and "per_second" not in k})
print(M(m), R())
m.save_pretrained("final")
