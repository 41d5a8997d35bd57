"""A root script becomes nobody after its first steps, as services do: folders of before can't be written, a model trains on."""
# PRELUDE
import stat

m = net(8)
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-3)
print(train(m, opt, 3))
os.mkdir("mine")
os.mkdir("theirs")
os.chmod("theirs", 0o700)
os.chown("mine", 65534, 65534)
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
print(os.getuid(), os.access("theirs", os.W_OK))
print(train(m, opt, 6, 3))
with torch.no_grad():
    print(H(torch.nan_to_num(torch.sqrt(m(batch(4)[0])), nan=0.0)))
torch.save(m.state_dict(), "mine/w.pt")
try:
    torch.save(m.state_dict(), "theirs/w.pt")
except (PermissionError, RuntimeError) as e:
    print(type(e).__name__)
print(M(m), R())
