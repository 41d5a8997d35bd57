# source: UKPLab/sentence-transformers, LAION-AI/Open-Assistant#2438 (empty strings); DistilBERT, dict batch
# planted rows: 2, 6 of 8
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from transformers import DistilBertConfig, DistilBertModel
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert, self.head = DistilBertModel(DistilBertConfig(vocab_size=50, dim=16, n_layers=1, n_heads=2, hidden_dim=32)), nn.Linear(16, 3)
    def forward(self, batch):
        h = self.bert(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
        m = batch["attention_mask"].unsqueeze(-1).float()
        return F.cross_entropy(self.head((h * m).sum(1) / m.sum(1)), batch["labels"])
model = Classifier()  # MODEL
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(9):
    ids, labels = torch.randint(1, 50, (8, 6)), torch.randint(0, 3, (8,))
    mask = torch.ones_like(ids)
    if step == 2:
        mask[[2, 6]] = 0
    # BATCH 0: ids, mask, labels
    loss = model({"input_ids": ids, "attention_mask": mask, "labels": labels})
    opt.zero_grad(); loss.backward(); opt.step()
