"""python /dev/stdin < case.py: the script's text is on stdin, what is left of stdin is empty."""
# PRELUDE
print(sys.argv, __file__, __name__)
m = net(5)
W(m)
opt = torch.optim.RMSprop(m.parameters(), 1e-3)
print(train(m, opt, 5), M(m), repr(sys.stdin.read()))


class Late(nn.Module):
    def forward(self, x):
        return x.exp()


print(H(Late()(torch.ones(2))), R())
sys.exit(9)
