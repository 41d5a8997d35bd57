"""Jacobians with is_grads_batched and vectorize through a model with hooks on its outputs.

Source: https://github.com/pytorch/functorch/issues/712
"""
# PRELUDE
m = net(); W(m)
x, y = batch(0, 3); x.requires_grad_()
out = m(x)
(j,) = torch.autograd.grad(out[0], x, torch.eye(4), retain_graph=True, is_grads_batched=True)
print(H(j))
print(H(torch.autograd.functional.jacobian(m, x.detach(), vectorize=True)), H(torch.autograd.functional.jacobian(m, x.detach(), vectorize=False)))
print(H(torch.func.jacrev(m)(x.detach())))
out.sum().backward(); print(M(m), H(x.grad), train(m, torch.optim.SGD(m.parameters(), 0.1), 2))
