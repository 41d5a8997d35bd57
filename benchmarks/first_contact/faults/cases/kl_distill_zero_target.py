"""Distillation with KL written out: 0 * log(0) for a teacher probability that underflows.
Source: RasmussenLab/vamb#12 (0*log 0), pytorch docs of kl_div (log_target)."""
import sys
import torch
import torch.nn.functional as F
from transformers import DistilBertConfig, DistilBertForSequenceClassification

CURED = "--cured" in sys.argv
torch.manual_seed(0)
cfg = dict(vocab_size=60, dim=16, hidden_dim=32, n_layers=1, n_heads=2, max_position_embeddings=20, num_labels=3)
student = DistilBertForSequenceClassification(DistilBertConfig(**cfg))
teacher = DistilBertForSequenceClassification(DistilBertConfig(**cfg)).eval()
opt = torch.optim.AdamW(student.parameters(), lr=1e-3)
for step in range(4):
    ids = torch.randint(60, (4, 9))
    with torch.no_grad():
        logits = teacher(input_ids=ids).logits
        if step == 2:
            logits = logits + torch.tensor([120.0, 0.0, 0.0])  # a sure teacher
        soft = logits.softmax(-1)
        if CURED:
            soft = soft.clamp(min=1e-12)
    logp = student(input_ids=ids).logits.log_softmax(-1)
    loss = (soft * (soft.log() - logp)).sum(-1).mean()  # FAULT
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
