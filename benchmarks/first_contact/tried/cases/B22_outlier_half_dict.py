# source: huggingface/transformers regression in float16: one sample's feature beyond range (nested dict)
# planted rows: 0 and 47 of 48
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.ln, self.fc2 = nn.Linear(6, 16), nn.LayerNorm(16), nn.Linear(16, 1)
    def forward(self, batch, training=True):
        h = self.fc1(batch["inputs"]["features"])
        h = self.fc2(self.ln(F.relu(h)))
        return F.mse_loss(h.squeeze(-1).float(), batch["targets"])
model = Net().to(torch.float16)  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(9):
    x, y = torch.randn(48, 6).to(torch.float16), torch.randn(48)
    if step == 2:
        x[[0, 47]] = 60000 * model.fc1.weight[0].detach().sign()
    # BATCH 0: x, y
    loss = model({"inputs": {"features": x}, "targets": y})
    opt.zero_grad(); loss.backward(); opt.step()
