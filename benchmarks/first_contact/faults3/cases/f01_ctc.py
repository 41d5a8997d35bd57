"""Small conv + GRU recognizer trained with CTC; one utterance is too short for its transcript.
Source: wenet-e2e/wenet#2299, ypwhs/captcha_break#29 (inputs too short to be aligned to the targets)."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(1)
CURED = "--cured" in sys.argv


class Recognizer(nn.Module):
    def __init__(self, mels=20, width=32, chars=12):
        super().__init__()
        self.conv = nn.Conv1d(mels, width, 3, stride=2, padding=1)
        self.rnn = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, chars)

    def forward(self, feats):
        x = F.relu(self.conv(feats)).transpose(1, 2)
        x, _ = self.rnn(x)
        return self.out(x).log_softmax(-1)


def batches(n):
    for i in range(n):
        frames = torch.randint(36, 60, (6,))
        chars = torch.randint(3, 9, (6,))
        if i == 7:
            frames[2], chars[2] = 14, 11  # fast speech
        feats = torch.randn(6, 20, 60)
        for b, f in enumerate(frames):
            feats[b, :, f:] = 0
        yield feats, torch.randint(1, 12, (6, 12)), (frames + 1) // 2, chars


model = Recognizer()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
losses = []
for step, (feats, text, frames, chars) in enumerate(batches(16)):
    logp = model(feats).transpose(0, 1)
    loss = F.ctc_loss(logp, text, frames, chars, zero_infinity=CURED)  # FAULT
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    opt.step()
    losses.append(loss.item())
    print(f"step {step} ctc {losses[-1]:.3f}")
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
