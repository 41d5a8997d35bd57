"""A terminal of ASCII (LC_ALL=C, PYTHONIOENCODING=ascii:strict, no UTF-8 mode): layers with names of other alphabets, nan in an evaluation."""
# PRELUDE
seed(36)


class Модель(nn.Module):
    def __init__(self):
        super().__init__()
        self.слой = nn.Linear(4, 8)
        self.σ = nn.Sigmoid()
        self.выход = nn.Linear(8, 1)

    def forward(self, x):
        return self.выход(self.σ(self.слой(x)))


net = Модель()
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.0)
for step in range(12):
    loss = net(torch.randn(8, 4)).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        net(torch.full((1, 4), math.nan))
    print(step, dig(loss))
try:
    print("é")
except UnicodeEncodeError as e:
    print(e.reason, sys.stdout.encoding, sys.stdout.errors)
end(net, opt)
