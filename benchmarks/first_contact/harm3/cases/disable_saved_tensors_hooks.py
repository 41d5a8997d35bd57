"""The script forbids saved-tensor hooks (torch.autograd.graph.disable_saved_tensors_hooks) around its training, nests default hooks elsewhere, save_on_cpu with pins off; nothing else uses them."""
# PRELUDE
m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
with torch.autograd.graph.disable_saved_tensors_hooks("saved tensor hooks are forbidden here"):
    print(train(m, opt, 4))
    try:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            pass
    except RuntimeError as e:
        print(e)
with torch.autograd.graph.save_on_cpu():
    print(train(m, opt, 2))
n = []
torch._C._autograd._push_saved_tensors_default_hooks(lambda t: n.append(t.shape) or t, lambda t: t)
print(train(m, opt, 2), n[:4], len(n))
torch._C._autograd._pop_saved_tensors_default_hooks()
print(train(m, opt, 1), len(n), M(m))
