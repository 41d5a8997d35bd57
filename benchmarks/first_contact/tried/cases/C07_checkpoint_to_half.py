# source: huggingface/transformers bf16 checkpoints loaded in float16: values above 65504 become inf (mT5, Pegasus)
# planted: rows 2, 7 of fc1.weight
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 12), nn.Linear(12, 3)
    def forward(self, x, y):
        return F.cross_entropy(self.fc2(F.gelu(self.fc1(x))).float(), y)
model = Net()
saved = {k: v.clone() for k, v in model.state_dict().items()}
saved["fc1.weight"][2, 1] = 1e5
saved["fc1.weight"][7, 4] = -2e5
model = model.to(torch.float16)  # MODEL
model.load_state_dict(saved)
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
# WEIGHT
for step in range(9):
    x, y = torch.randn(8, 6).to(torch.float16), torch.randint(0, 3, (8,))
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
