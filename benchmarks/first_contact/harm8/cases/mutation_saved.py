# what: allow_mutation_on_saved_tensors around steps that change saved activations in place
# PRELUDE
model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1)
for s in range(4):
    x, y = batch(s); opt.zero_grad()
    with torch.autograd.graph.allow_mutation_on_saved_tensors() as ctx:
        h = model[0](x); e = h.exp(); l = (e * e).mean(); e.mul_(0.5); l = l + model(x).pow(2).mean() + e.mean(); x.zero_(); l.backward()
        print(len(ctx.cloned), float(l.detach()).hex())
    opt.step()
print(M(model), R())
