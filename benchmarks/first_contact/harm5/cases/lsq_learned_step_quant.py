"""LSQ: learned step sizes with grad_scale and round_pass through detach, modules swapped by class in a model under watch, init of the step from the weights, buffers for the state."""
# PRELUDE
def grad_scale(x, s):
    return (x - x * s).detach() + x * s
def round_pass(x):
    return (x.round() - x).detach() + x
class Q(nn.Module):
    def __init__(self, lo, hi):
        super().__init__()
        self.lo, self.hi = lo, hi
        self.s = nn.Parameter(torch.ones(1))
        self.register_buffer("init", torch.zeros(1))

    def forward(self, x):
        if self.training and self.init == 0:
            self.s.data.copy_(2 * x.detach().abs().mean() / self.hi ** 0.5)
            self.init.fill_(1)
        s = grad_scale(self.s, 1 / (self.hi * x.numel()) ** 0.5)
        return round_pass((x / s).clamp(self.lo, self.hi)) * s


class QLinear(nn.Linear):
    def __init__(self, l):
        super().__init__(l.in_features, l.out_features)
        self.weight, self.bias = l.weight, l.bias
        self.qw, self.qa = Q(-8, 7), Q(-8, 7)

    def forward(self, x):
        return F.linear(self.qa(x), self.qw(self.weight), self.bias)


m = net(2)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
print(train(m, opt, 3))
for n, l in list(m.named_children()):
    if isinstance(l, nn.Linear):
        setattr(m, n, QLinear(l))
opt.add_param_group({"params": [p for n, p in m.named_parameters() if n.endswith(".s")], "lr": 1e-3})
print(train(m, opt, 6, 5), M(m))
m.eval()
print(H(m(batch(3)[0])), R())
torch.save(m, "q.pt")
print(H(torch.load("q.pt", weights_only=False)(batch(3)[0])))
