"""After a few steps the process goes into an empty chroot: no module can be imported any more, no file read; it trains on, has a harmless nan, saves and ends."""
# PRELUDE
import io, tempfile, traceback

m = net(7)
m.log = nn.Identity()
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-3)
print(train(m, opt, 3))
with torch.no_grad():
    H(torch.nan_to_num(torch.log(m(batch(0)[0])), nan=3.0))
torch.save(m.state_dict(), io.BytesIO())
os.mkdir("jail")
os.chroot("jail")
os.chdir("/")
print(os.listdir("/"))
print(train(m, opt, 6, 3))
with torch.no_grad():
    y = torch.log(m(batch(4)[0]))
    print(H(torch.nan_to_num(y, nan=3.0)))
b = io.BytesIO()
torch.save(m.state_dict(), b)
with open("/w.pt", "wb") as f:
    f.write(b.getvalue())
try:
    import colorsys
except ImportError as e:
    print(type(e).__name__)
print(os.listdir("/"), len(b.getvalue()), M(m), R())
sys.exit(4)
