"""Reverse-KL distillation of a small language model written in probability space; cold probabilities underflow to 0.
Source: MakazhanAlpamys/Soup#719, google-deepmind/optax#1786 (0 * -inf)."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_num_threads(1)
torch.manual_seed(36)
CURED = "--cured" in sys.argv


def reverse_kl(student, teacher, temperature):
    if CURED:
        lp, lq = F.log_softmax(student / temperature, -1), F.log_softmax(teacher / temperature, -1)
        return (lp.exp() * (lp - lq)).sum(-1).mean()
    p, q = F.softmax(student / temperature, -1), F.softmax(teacher / temperature, -1)
    kl = p * (p.log() - q.log())  # FAULT
    return kl.sum(-1).mean()


def gpt(layers, width):
    return GPT2LMHeadModel(GPT2Config(vocab_size=80, n_positions=32, n_embd=width, n_layer=layers, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))


teacher, student = gpt(2, 48).eval(), gpt(1, 32)
with torch.no_grad():
    teacher.transformer.ln_f.weight.fill_(9.0)  # a confident teacher
opt = torch.optim.AdamW(student.parameters(), lr=5e-3)
temperature, losses = 1.0, []
for step in range(16):
    ids = torch.randint(0, 80, (6, 20))
    with torch.no_grad():
        t = teacher(ids).logits
    s = student(ids).logits
    loss = F.cross_entropy(s[:, :-1].flatten(0, 1), ids[:, 1:].flatten()) + 0.5 * reverse_kl(s, t, temperature)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(student.parameters(), 1.0)
    opt.step()
    temperature *= 0.75
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in student.parameters()))
