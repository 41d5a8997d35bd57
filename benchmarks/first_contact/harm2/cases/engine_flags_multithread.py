"""set_multithreading_enabled(False), _force_original_view_tracking, set_num_threads(2), allow_mutation_on_saved_tensors: results and flags afterwards.

Source: https://github.com/pytorch/pytorch/issues/97500
"""
# PRELUDE
m = net(); W(m)
opt = torch.optim.SGD(m.parameters(), 0.1)
with torch.autograd.set_multithreading_enabled(False):
    print(train(m, opt, 2), torch.autograd._engine._is_multithreading_enabled() if hasattr(torch.autograd, "_engine") else torch._C._is_multithreading_enabled())
with torch.autograd._force_original_view_tracking(True):
    v = m(batch(0)[0]).view(-1)[:3]; v.mul_(2); v.sum().backward(); print(M(m))
with torch.autograd.graph.allow_mutation_on_saved_tensors():
    a = m(batch(0)[0]); b = a.exp(); b.add_(1); b.sum().backward(); print(M(m))
torch.set_num_threads(2); print(train(m, opt, 2), torch.get_num_threads()); torch.set_num_threads(1)
print(torch._C._is_multithreading_enabled(), torch.is_grad_enabled(), M(m))
