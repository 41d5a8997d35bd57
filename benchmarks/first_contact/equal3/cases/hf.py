"""transformers' Trainer, or Accelerate by hand, with a tiny Llama; --lora by PEFT."""
import os

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", ACCELERATE_USE_CPU="true", TOKENIZERS_PARALLELISM="false")
from littlelm import *
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

how, fault, accum = arg("--how", "trainer"), arg("--fault"), 2
torch.manual_seed(0)
config = LlamaConfig(vocab_size=V, hidden_size=D, intermediate_size=2 * D, num_hidden_layers=2, num_attention_heads=H, num_key_value_heads=2,
                     max_position_embeddings=64, tie_word_embeddings="--tied" in sys.argv, pad_token_id=None, bos_token_id=None, eos_token_id=None)
model = LlamaForCausalLM(config)
if "--lora" in sys.argv:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "gate_proj"], lora_dropout=0.0, init_lora_weights=False,
                                             modules_to_save=["lm_head"]))
rows = []
for step in range(12):
    tokens, labels = batch(step)
    labels = torch.cat([torch.full_like(labels[:, :1], -100), labels[:, :-1]], 1)
    for i in range(B):
        rows.append({"input_ids": tokens[i], "labels": labels[i]})
if how == "trainer":
    class Show(TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **k):
            report(state.global_step, 0.0, model)
            if state.global_step >= STEPS:
                control.should_training_stop = True

    class Other(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            if fault == "own-loss":  # written before num_items_in_batch: a mean, which nobody divides by the accumulation
                return model(**inputs).loss
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

        def _get_train_sampler(self, *a, **k):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    per = B // WORLD // accum
    if fault == "half-batch":
        per = per
    args = TrainingArguments(output_dir="out", use_cpu=True, ddp_backend="gloo" if WORLD > 1 else None, per_device_train_batch_size=per, gradient_accumulation_steps=accum,
                             num_train_epochs=1, learning_rate=0.1, optim="sgd", lr_scheduler_type="constant", max_grad_norm=float(arg("--clip", "0")), report_to=[],
                             save_strategy="no", logging_strategy="no", disable_tqdm=True, weight_decay=0.1 if fault == "decay" else 0.0, warmup_steps=0,
                             average_tokens_across_devices=fault != "no-average", remove_unused_columns=False, dataloader_drop_last=True,
                             gradient_checkpointing="--recompute" in sys.argv, gradient_checkpointing_kwargs={"use_reentrant": False})
    Other(model=model, args=args, train_dataset=rows, data_collator=lambda r: {k: torch.stack([x[k] for x in r]) for k in r[0]}).train()
else:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accum)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.3)
    loader = torch.utils.data.DataLoader(rows, batch_size=B // WORLD // accum, shuffle=False)
    if fault == "unprepared-model":
        optimizer, loader = accelerator.prepare(optimizer, loader)
    else:
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    core = accelerator.unwrap_model(model)
    step, seen, n = 0, 0.0, 0
    for i, got in enumerate(loader):
        x, y = got["input_ids"], got["labels"]
        whole = sum(int((r["labels"] != -100).sum()) for r in rows[step * B:(step + 1) * B])
        with accelerator.accumulate(model):
            logits = model(input_ids=x).logits[:, :-1]
            loss = ce(logits, y[:, 1:])
            seen, n = seen + loss.item(), n + int((y != -100).sum())
            loss = loss / whole * WORLD
            if fault != "double-div":
                loss = loss * accum
            if fault == "twice-world":
                loss = loss * WORLD
            accelerator.backward(loss)
            if accelerator.sync_gradients and "--clip" in sys.argv:
                accelerator.clip_grad_norm_(model.parameters(), float(arg("--clip")))
            if fault == "clip-always":
                accelerator.unscale_gradients()
                torch.nn.utils.clip_grad_norm_(model.parameters(), float(arg("--clip")))
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            report(step, total(seen, n), core)
            step, seen, n = step + 1, 0.0, 0
            if step >= STEPS:
                break
