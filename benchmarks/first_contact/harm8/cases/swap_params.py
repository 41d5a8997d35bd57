# what: swap_tensors on conversion: model.to(dtype), load_state_dict between steps (weakrefs and node uses forbid it)
# PRELUDE
torch.__future__.set_swap_module_params_on_conversion(True)
model = net(); W(model)
opt = torch.optim.SGD(model.parameters(), lr=.1, momentum=.9)
print(train(model, opt, 3))
opt.zero_grad()
ids = [id(p) for p in model.parameters()]
try:
    model.to(torch.float64); print("swapped", [id(p) for p in model.parameters()] == ids, {p.dtype for p in model.parameters()})
except RuntimeError as e: print("error", str(e)[:90])
try:
    model.to(torch.float32); model.load_state_dict(net(5).state_dict()); print("loaded")
except RuntimeError as e: print("error", str(e)[:90])
opt = torch.optim.SGD(model.parameters(), lr=.1)
print(train(model, opt, 3), M(model), R())
a, b = model[0].weight, nn.Parameter(torch.ones(16, 8))
try:
    torch.utils.swap_tensors(a, b); print("swap ok", float(a.sum()))
except RuntimeError as e: print("error", str(e)[:90])
