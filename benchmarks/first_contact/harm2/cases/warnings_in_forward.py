"""Warnings that forwards issue (once per line by default, also from torch itself): their text, number and lines on stderr.

Source: https://github.com/EnergieID/entsoe-py/issues/501
"""
# PRELUDE
import warnings
class Net(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(8, 4)
    def forward(self, x):
        warnings.warn("each call, shown once")
        warnings.warn(f"size {len(x)}", FutureWarning)
        return self.l(x)
torch.manual_seed(0); m = Net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1)
print(train(m, opt, 3))
F.mse_loss(m(torch.ones(4, 8)), torch.ones(4, 1)).backward()
torch.tensor(torch.ones(2)); x = np.ones(3); x.flags.writeable = False; torch.from_numpy(x)
with warnings.catch_warnings(record=True) as w:
    warnings.simplefilter("always"); train(m, opt, 2); print([(str(i.message), i.lineno, os.path.basename(i.filename)) for i in w])
with warnings.catch_warnings():
    warnings.simplefilter("error")
    try:
        m(torch.ones(1, 8))
    except UserWarning as e:
        print("error", e)
warnings.resetwarnings(); print(train(m, opt, 2), M(m))
