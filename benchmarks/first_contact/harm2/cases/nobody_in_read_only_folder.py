"""The script gives up root and works in a folder it can't write; home and temporary folder don't exist.

Source: invented
"""
# PRELUDE
k = net(1); print(train(k, torch.optim.SGD(k.parameters(), 0.1), 1))  # torch imports the rest of itself
os.mkdir("ro"); os.chmod("ro", 0o555); os.chmod(".", 0o755); os.environ.update(HOME="/nonexistent", TMPDIR="/nonexistent/tmp", XDG_CACHE_HOME="/nonexistent/c"); os.chdir("ro")
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1)
for s in range(3): print(train(m, opt, 1, s))
try:
    open("x", "w")
except PermissionError as e: print(e)
import tempfile; print(os.getuid(), M(m), tempfile.gettempdir())
