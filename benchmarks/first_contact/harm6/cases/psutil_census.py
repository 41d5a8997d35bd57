"""A monitor of the script's own that looks at its process with psutil at each step: open files, sockets, children, threads, descriptors' kinds, temporary folder, memory maps of files that are no libraries; limits, nice value, affinity."""
import psutil, tempfile
# PRELUDE
me = psutil.Process()
tmp = set(os.listdir(tempfile.gettempdir()))


def census():
    kinds = {}
    for f in os.listdir("/proc/self/fd"):
        try:
            to = os.readlink(f"/proc/self/fd/{f}")
        except OSError:
            continue
        kind = to.split(":")[0] if not to.startswith("/") else ("dev" if to.startswith("/dev") else "proc" if to.startswith("/proc") else "file")
        kinds[kind] = kinds.get(kind, 0) + 1
    return {
        "open": sorted(os.path.basename(f.path) for f in me.open_files() if not f.path.endswith((".stdout", ".stderr", "stdin"))),
        "sockets": len(me.net_connections()),
        "children": len(me.children(recursive=True)),
        "python threads": len(__import__("threading").enumerate()),
        "kinds": dict(sorted(kinds.items())),
        "nice": me.nice(),
        "affinity": len(me.cpu_affinity()) == len(os.sched_getaffinity(0)),
        "mapped data": sorted({os.path.basename(x.path) for x in me.memory_maps() if x.path.startswith((os.path.join(tempfile.gettempdir(), "tmp"), "/dev/shm", os.getcwd()))}),
        "cwd": me.cwd() == os.getcwd(),
        "status": me.status(),
        "tmp": sorted(n for n in set(os.listdir(tempfile.gettempdir())) - tmp if "numscope" in n),
        "env": sorted(k for k in me.environ() if k not in os.environ),
        "umask": os.umask(os.umask(0o022)),
    }


m = net()
print(census())
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2)
for s in range(12):
    loss = train(m, opt, 1, s)
    if s % 3 == 2:
        with torch.no_grad():
            torch.nan_to_num(m(batch(s)[0]).log())
        print(s, loss, census())
torch.save(m.state_dict(), "m.pt")
print(M(m), census() == census())
