# starts N forked ranks of case.py, as some schedulers and notebooks do; ends the others 6 s after one failed
import multiprocessing, os, runpy, socket, sys, time
import torch, torch.distributed, torch.nn.functional  # before the fork
def go(r, w, port):
    os.environ.update(RANK=str(r), WORLD_SIZE=str(w), LOCAL_RANK=str(r), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    runpy.run_path("case.py", run_name="__main__")
if __name__ == "__main__":
    w = int(sys.argv[1]); s = socket.socket(); s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]; s.close()
    ctx = multiprocessing.get_context("fork")
    ps = [ctx.Process(target=go, args=(r, w, port)) for r in range(w)]
    [p.start() for p in ps]
    failed = None
    while any(p.is_alive() for p in ps):
        time.sleep(0.05)
        if failed is None and any(p.exitcode for p in ps): failed = time.time()
        if failed and time.time() - failed > 6: [p.terminate() for p in ps if p.is_alive()]; break
    [p.join() for p in ps]
    first = next((c for c in sorted((p.exitcode for p in ps), key=lambda c: c != 3) if c), 0)
    print("exits", sorted(p.exitcode for p in ps), flush=True)
    sys.exit(first if first >= 0 else 128 - first)
