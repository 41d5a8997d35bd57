"""transformers' Trainer on a tiny GPT-2, saving safetensors, optimizer, scheduler and RNG state, resumed from its checkpoint.

source: huggingface/transformers Trainer docs; huggingface/pytorch-image-models style resume
meta: {"limit": 150, "ignore": ["out/checkpoint-*/training_args.bin", "out/runs*", "out/*/trainer_state.json"], "compare": ["status", "stdout", "files", "left"]}
"""
import logging
import os
import warnings

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["HF_HUB_OFFLINE"] = "1"
warnings.simplefilter("ignore")
import torch
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainingArguments
from fcw import rng, say, seed, sha, watch, weights


def go(resume):
    seed(305)
    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=50, n_positions=16, bos_token_id=0, eos_token_id=0))
    watch(model)
    data = [{"input_ids": (t := torch.randint(0, 50, (12,), generator=torch.Generator().manual_seed(i))), "labels": t} for i in range(24)]
    args = TrainingArguments("out", per_device_train_batch_size=4, max_steps=8, save_steps=4, logging_steps=2, report_to=[], disable_tqdm=True, use_cpu=True, seed=1, gradient_accumulation_steps=2, max_grad_norm=0.5, lr_scheduler_type="cosine")
    trainer = Trainer(model, args, train_dataset=data, eval_dataset=data[:4])
    trainer.remove_callback(PrinterCallback)
    done = trainer.train(resume_from_checkpoint=resume)
    say([(h["step"], h["loss"]) for h in trainer.state.log_history if "loss" in h], float(done.training_loss).hex(), trainer.evaluate()["eval_loss"])
    say(sha(weights(model)), rng())


go(None)
go("out/checkpoint-4")
