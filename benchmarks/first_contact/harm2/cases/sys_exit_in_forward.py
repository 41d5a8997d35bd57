"""sys.exit with a text inside a forward: the text on stderr, status 1.

Source: https://github.com/Lightning-AI/pytorch-lightning/issues/11924
"""
# PRELUDE
class Net(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(8, 4); self.n = 0
    def forward(self, x):
        self.n += 1
        if self.n == 4: sys.exit("enough of this")
        return self.l(x)
torch.manual_seed(0); m = Net(); print(train(m, torch.optim.SGD(m.parameters(), 0.1), 10))
