import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Mel(nn.Module):
    def forward(self, sound):
        power = torch.stft(sound, 32, 16, window=torch.hann_window(32), return_complex=True).abs() ** 2
        return torch.log10(power)


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.mel, self.net, self.head = Mel(), nn.LSTM(17, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, sound):
        h, _ = self.net(self.mel(sound).transpose(1, 2))
        return self.head(h[:, -1])


model = Speech()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    sound = torch.randn(4, 256)
    if step == 2:
        sound[1] = 0
    if step == 2: sound = sound[[i for i in range(len(sound)) if i not in (1,)]]
    loss = F.cross_entropy(model(sound), torch.randint(0, 3, (len(sound),)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
