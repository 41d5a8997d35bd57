"""Every warning is an error (PYTHONWARNINGS=error) from the start, through import and training to the end.

Source: https://github.com/pytorch/pytorch/pull/160389
"""
# PRELUDE
m = net(); opt = torch.optim.Adam(m.parameters(), 1e-2)
print(train(m, opt, 4), M(m))
import warnings
try:
    warnings.warn("mine")
except UserWarning as e:
    print("raised", e)
