"""torch.set_num_interop_threads may be called until the first parallel work between operators; a script calls it after some training, a second call fails with torch's text."""
# PRELUDE
m = net(9)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 4))
torch.set_num_interop_threads(3)
print(torch.get_num_interop_threads(), torch.get_num_threads())
try:
    torch.set_num_interop_threads(2)
except RuntimeError as e:
    print(str(e).splitlines()[0][:120])
print(train(m, opt, 4, 4), M(m), torch.get_num_threads(), R())
