"""transformers' Trainer: two epochs, evaluation, saved model and log history (without times).

Source: https://github.com/huggingface/transformers (examples/pytorch/text-classification)
"""
import hashlib, os, random, sys
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

random.seed(11)
np.random.seed(12)
torch.manual_seed(13)
torch.set_num_threads(1)


def H(*things):
    """A short hash of the bits of tensors, arrays, containers and plain values."""
    h = hashlib.sha256()

    def eat(t):
        if isinstance(t, torch.Tensor):
            t = t.detach()
            if t.layout != torch.strided:
                t = t.to_dense()
            h.update(f"{t.dtype}{tuple(t.shape)}".encode())
            t = t.resolve_conj().resolve_neg().contiguous().cpu().reshape(-1)
            h.update(t.view(torch.uint8).numpy().tobytes() if t.numel() else b"")
        elif isinstance(t, np.ndarray):
            h.update(f"{t.dtype}{t.shape}".encode() + np.ascontiguousarray(t).tobytes())
        elif isinstance(t, dict):
            for k, v in t.items():
                h.update(repr(k).encode())
                eat(v)
        elif isinstance(t, (list, tuple)):
            h.update(f"{len(t)}(".encode())
            for v in t:
                eat(v)
        else:
            h.update(repr(t).encode())

    for t in things:
        eat(t)
    return h.hexdigest()[:16]


def M(model):
    """Weights, buffers and gradients."""
    return H(dict(model.state_dict()), [p.grad for p in model.parameters()])


def R():
    """All random states."""
    return H(torch.get_rng_state(), random.getstate(), np.random.get_state())


def W(model, **options):
    """With FC_WATCH=1 the model is watched from inside the script."""
    if os.environ.get("FC_WATCH") == "1":
        import numscope

        return numscope.watch(model, **options)


def net(seed=0, i=8, h=16, o=4):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(i, h), nn.Tanh(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o))


def batch(step, n=6, i=8, o=4):
    g = torch.Generator().manual_seed(1000 + step)
    return torch.randn(n, i, generator=g), torch.randn(n, o, generator=g)


def train(model, opt, steps=5, first=0):
    for s in range(first, first + steps):
        x, y = batch(s)
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
    return float(loss.detach()).hex()


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
