"""Generalized JSD with beta, gradient weighted by beta instead of 1 - beta (linkedin/Liger-Kernel PR 290: (1-beta) Q (X - log M)); applied by the script itself, in no module."""
from _c import *
class JSD(Function):
    @staticmethod
    def forward(ctx, X, Y, beta):
        Q, P = X.exp(), Y.exp(); M = beta * P + (1 - beta) * Q; ctx.save_for_backward(X, M); ctx.beta = beta
        return (beta * P * Y + (1 - beta) * Q * X - M * M.log()).sum()
    @staticmethod
    def backward(ctx, g):
        X, M = ctx.saved_tensors; b = ctx.beta if BAD else 1 - ctx.beta
        return g * b * X.exp() * (X - M.log()), None, None
Y = torch.randn(6, 8, 5).log_softmax(-1)
truth(lambda z: JSD.apply(z.log_softmax(-1), Y[0].double(), .1), torch.randn(8, 5))
m = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 5)); x = torch.randn(6, 8, 10)
fit(m, lambda s: JSD.apply(m(x[s]).log_softmax(-1), Y[s], .1))
