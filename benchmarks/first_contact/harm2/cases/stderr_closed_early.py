"""Started without a stderr: output, status, the number of the next descriptor that open gives (2).

Source: https://github.com/RolnickLab/ami-data-companion/issues/145 (descriptors)
"""
# PRELUDE
print(sys.stderr, sys.__stderr__)
m = net(); W(m); print(train(m, torch.optim.SGD(m.parameters(), 0.1), 3), M(m))
f = open("two.txt", "w"); f.write("only this\n"); f.close()
import warnings; warnings.warn("nobody reads this")
