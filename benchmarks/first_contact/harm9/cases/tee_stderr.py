"""sys.stdout and sys.stderr are objects with write only, as in many training scripts' Tee classes: no fileno, isatty, encoding; nan in an evaluation."""
# PRELUDE
seed(111)
real = sys.stdout


class Tee:
    def __init__(self):
        self.n = 0

    def write(self, s):
        self.n += len(s)
        if self is out:
            real.write(s)

    def flush(self):
        pass


out, err = Tee(), Tee()
sys.stdout, sys.stderr = out, err
net = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 3))
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.0)
for step in range(12):
    x, y = torch.randn(8, 5), torch.randint(0, 3, (8,))
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        e = net(x / 0) if step == 4 else net(x)
    print(step, dig(loss, e))
end(net, opt)
print(out.n)
