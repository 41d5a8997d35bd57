"""A sitecustomize of the user's counts nn.Module.__call__ and wraps Tensor.backward before the script begins."""
# PRELUDE
import sitecustomize

m = net(7)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 5), M(m))
print(sitecustomize.counts, nn.Module.__call__.__name__, torch.Tensor.backward.__name__)
