"""A forward that recurses until RecursionError, which the script catches (a search for the greatest depth); training goes on.

Source: https://github.com/montefiore-institute/balanced-nre/issues/6
"""
# PRELUDE
class Loop(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(4, 4)
    def forward(self, x, n=0):
        return self.forward(self.l(x), n + 1) if n >= 0 else x
torch.manual_seed(0); m = Loop(); W(m); ok = net(); W(ok)
for s in range(3):
    try:
        m(torch.ones(1, 4))
    except RecursionError as e:
        print("RecursionError", str(e)[:32])
    print(train(ok, torch.optim.SGD(ok.parameters(), 0.1), 2, s))
print(M(m), M(ok), R())
