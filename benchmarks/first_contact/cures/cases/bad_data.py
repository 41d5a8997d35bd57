import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/etzinis/sudo_rm_rf/issues/1
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.rnn = nn.GRU(4, 16, batch_first=True); self.fc = nn.Linear(16, 1)
    def forward(self, x): return self.fc(self.rnn(x.log1p())[0][:, -1])
model = Net(); opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    x = torch.rand(4, 7, 4)
    if step == 5: x[1, 2, 3] = float("nan")     # a missing sensor reading
    loss = F.mse_loss(model(x), torch.zeros(4, 1)); opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
