"""Trainer: evaluation, early stopping, best model, checkpoints with random states, and a second Trainer that resumes from the middle."""
# PRELUDE
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, EarlyStoppingCallback
import json, logging, transformers
transformers.utils.logging.disable_progress_bar()
class D(torch.utils.data.Dataset):
    def __len__(self): return 24
    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return {"input_ids": torch.randint(1, 30, (8,), generator=g), "labels": torch.tensor(i % 2)}
def model():
    torch.manual_seed(5)
    return BertForSequenceClassification(BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, max_position_embeddings=16))
def trainer(m, epochs):
    a = TrainingArguments(output_dir="out", per_device_train_batch_size=4, num_train_epochs=epochs, eval_strategy="steps", eval_steps=4, save_steps=4, logging_steps=2, save_total_limit=3, load_best_model_at_end=True, metric_for_best_model="loss", report_to=[], disable_tqdm=True, use_cpu=True, seed=7, learning_rate=1e-3, max_grad_norm=0.5, gradient_accumulation_steps=1, dataloader_num_workers=0)
    return Trainer(model=m, args=a, train_dataset=D(), eval_dataset=D(), compute_metrics=lambda p: {"acc": float((p.predictions.argmax(-1) == p.label_ids).mean())}, callbacks=[EarlyStoppingCallback(3)])
def clean(log):
    return [{k: v for k, v in d.items() if "runtime" not in k and "per_second" not in k} for d in log]
m = model()
W(m)
t = trainer(m, 2)
t.remove_callback(transformers.PrinterCallback)
t.train()
print(M(m), clean(t.state.log_history), t.state.best_model_checkpoint)
print(sorted(os.listdir("out")), sorted(os.listdir("out/checkpoint-8")))
st = torch.load("out/checkpoint-8/rng_state.pth", weights_only=False)
print({k: H(v) for k, v in st.items()})
print({f: hashlib.sha256(open("out/checkpoint-8/" + f, "rb").read()).hexdigest()[:12] for f in sorted(os.listdir("out/checkpoint-8")) if f not in ("trainer_state.json", "training_args.bin")})
m2 = model()
W(m2)
t2 = trainer(m2, 3)
t2.remove_callback(transformers.PrinterCallback)
t2.train(resume_from_checkpoint="out/checkpoint-8")
print(M(m2), clean(t2.state.log_history)[-3:], t2.state.global_step, R())
print(t2.predict(D()).metrics["test_loss"].hex())
