import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class LM(nn.Module):  # loss within the model, as in transformers; all labels -100 in one micro-batch
    def __init__(self):
        super().__init__(); self.e, self.h = nn.Embedding(10, 8), nn.Linear(8, 10)
    def forward(self, ids, labels):
        logits = self.h(self.e(ids))
        loss = F.cross_entropy(logits[:, :-1].reshape(-1, 10), labels[:, 1:].reshape(-1), ignore_index=-100)
        return loss, logits
net = LM(); opt = torch.optim.AdamW(net.parameters(), 1e-3)
for step in range(4):
    opt.zero_grad()
    for micro in range(3):
        ids = torch.randint(0, 10, (2, 6)); labels = ids.clone()
        labels[:, :2] = -100
        if step == 2 and micro == 1: labels[:] = -100  # prompts cut at the maximum length
        loss, _ = net(ids, labels)
        (loss / 3).backward()
        if not loss.isfinite(): print("micro", micro, "loss", loss.item())
    opt.step()
    ok(step, loss, net)
