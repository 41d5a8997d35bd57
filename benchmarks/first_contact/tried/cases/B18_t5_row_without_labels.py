# source: huggingface/trl / transformers per-sample mean over labels != -100: a sample without any
# planted rows: 4 of 6
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from transformers import T5Config, T5ForConditionalGeneration
class Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.t5 = T5ForConditionalGeneration(T5Config(vocab_size=40, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, dropout_rate=0.0, decoder_start_token_id=0))
    def forward(self, ids, labels):
        logits = self.t5(input_ids=ids, labels=labels).logits
        keep = labels != -100
        nll = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        return ((nll * keep).sum(1) / keep.sum(1)).mean()
model = Seq()  # MODEL
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(9):
    ids, labels = torch.randint(1, 40, (6, 7)), torch.randint(1, 40, (6, 5))
    if step == 2:
        labels[4] = -100
    # BATCH 0: ids, labels
    loss = model(ids, labels)
    opt.zero_grad(); loss.backward(); opt.step()
