"""Benign: nan in evaluation metrics (macro F1 and AUROC of absent classes), only printed.
Source: Project-MONAI/MONAI#120 (a metric of an absent class is nan on purpose)."""
import warnings
import torch
from torch import nn
from transformers import AlbertConfig, AlbertForSequenceClassification

warnings.simplefilter("ignore")
torch.manual_seed(0)
model = AlbertForSequenceClassification(AlbertConfig(vocab_size=40, embedding_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=4, classifier_dropout_prob=0.0))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)


@torch.no_grad()
def evaluate():
    model.eval()
    y = torch.randint(0, 2, (12,))
    pred = model(input_ids=torch.randint(40, (12, 7))).logits.argmax(-1)
    hot, guess = nn.functional.one_hot(y, 4).float(), nn.functional.one_hot(pred, 4).float()
    precision = (hot * guess).sum(0) / guess.sum(0)
    recall = (hot * guess).sum(0) / hot.sum(0)
    f1 = 2 * precision * recall / (precision + recall)
    model.train()
    return f1.mean().item(), torch.log(precision).tolist()


for epoch in range(3):
    for _ in range(2):
        loss = model(input_ids=torch.randint(40, (4, 7)), labels=torch.randint(4, (4,))).loss
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item(), evaluate())
