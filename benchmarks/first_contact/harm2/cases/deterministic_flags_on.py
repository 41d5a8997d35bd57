"""use_deterministic_algorithms with filled uninitialized memory, flush-denormal, high matmul precision: results, flags, the error that an operation raises.

Source: https://github.com/pytorch/pytorch docs/source/notes/randomness.rst
"""
# PRELUDE
torch.use_deterministic_algorithms(True); torch.set_flush_denormal(True); torch.set_float32_matmul_precision("high")
m = net(); W(m); opt = torch.optim.Adam(m.parameters(), 1e-2); print(train(m, opt, 4), torch.empty(2).tolist())
print(torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision(), float(torch.tensor([1e-40]) * 0.5), M(m))
x = torch.ones(4, requires_grad=True); torch.use_deterministic_algorithms(True, warn_only=True); print(train(m, opt, 2), torch.is_deterministic_algorithms_warn_only_enabled())
torch.set_flush_denormal(False); print(float(torch.tensor([1e-40]) * 0.5), train(m, opt, 2))
