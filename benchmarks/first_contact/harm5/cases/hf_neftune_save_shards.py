"""Trainer with NEFTune (a hook with noise on the embedding, removed afterwards), then save_pretrained in shards and from_pretrained (models made on meta), then further steps."""
# PRELUDE
import transformers
transformers.utils.logging.disable_progress_bar()
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
cfg = LlamaConfig(vocab_size=30, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True)
m = LlamaForCausalLM(cfg)
W(m)
data = [{"input_ids": torch.randint(0, 30, (8,), generator=torch.Generator().manual_seed(i))} for i in range(16)]
for d in data:
    d["labels"] = d["input_ids"].clone()
a = TrainingArguments(output_dir="out", per_device_train_batch_size=2, max_steps=6, neftune_noise_alpha=5.0, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, lr_scheduler_type="cosine_with_restarts", warmup_steps=2, optim="adafactor", logging_steps=100)
t = Trainer(model=m, args=a, train_dataset=data)
t.remove_callback(transformers.PrinterCallback)
print(float(t.train().training_loss).hex(), M(m))
m.save_pretrained("saved", max_shard_size="5KB")
m2, info = LlamaForCausalLM.from_pretrained("saved", output_loading_info=True)
print({k: sorted(v) for k, v in info.items() if v}, m2.lm_head.weight is m2.model.embed_tokens.weight)
W(m2)
print(H(dict(m2.state_dict())) == H(dict(m.state_dict())))
opt = torch.optim.SGD(m2.parameters(), 0.1)
for s in range(3):
    ids = torch.stack([d["input_ids"] for d in data[s * 2:s * 2 + 2]])
    opt.zero_grad()
    m2(input_ids=ids, labels=ids).loss.backward()
    opt.step()
print(M(m2), R())
