"""detect_anomaly around healthy training, and one planted error in backward that the script catches: the type and the text of the warning (its first line).

Source: https://github.com/pytorch/pytorch/issues/101069
"""
# PRELUDE
import warnings
m = net(); W(m)
opt = torch.optim.SGD(m.parameters(), 0.1)
with warnings.catch_warnings(record=True) as ws:
    warnings.simplefilter("always")
    with torch.autograd.detect_anomaly(check_nan=True):
        print(train(m, opt, 3))
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): return x.clone()
        @staticmethod
        def backward(ctx, g): raise KeyError("mine")
    with torch.autograd.set_detect_anomaly(True):
        try:
            Bad.apply(m(batch(0)[0])).sum().backward()
        except KeyError as e:
            print("caught", e)
for w in ws:
    print(w.category.__name__, str(w.message).splitlines()[0][:100])
print(torch.is_anomaly_enabled(), M(m), train(m, opt, 2))
