"""python zygote.py JOBS.json: forks each job from one process that has imported torch. A job: mode bare|ns, script, dir, args, trace."""
import sys, os, json, time, traceback, runpy, signal
import torch, torch.nn.functional, torch.optim
import transformers
before = set(sys.modules)
if os.path.exists(sys.argv[2]):
    for name in json.load(open(sys.argv[2])):
        try:
            __import__(name)
        except BaseException:
            pass


def finite(tensors):
    return all(bool(torch.isfinite(t).all()) for t in tensors if torch.is_tensor(t) and t.is_floating_point())


def instrument(path, digest):
    import hashlib, weakref
    events, opts = [], []
    init = torch.optim.Optimizer.__init__

    def new_init(self, *a, **k):
        init(self, *a, **k)
        opts.append(weakref.ref(self))
    torch.optim.Optimizer.__init__ = new_init

    def params():
        seen = {}
        for ref in opts:
            o = ref()
            for g in o.param_groups if o else ():
                for p in g["params"]:
                    seen[id(p)] = p
        return list(seen.values())
    back = torch.Tensor.backward

    def new_back(self, *a, **k):
        loss = float(self.detach().float().sum())
        try:
            return back(self, *a, **k)
        finally:
            events.append({"e": "backward", "loss": loss, "grads": finite([p.grad for p in params() if p.grad is not None])})
            save()

    def post(o, a, k):
        ps = params()
        e = {"e": "step", "params": finite(ps), "state": finite([v for s in o.state.values() for v in s.values()])}
        if digest:
            h = hashlib.sha256()
            for p in ps:
                h.update(p.detach().contiguous().view(torch.uint8).numpy().tobytes() if p.dim() else p.detach().reshape(1).view(torch.uint8).numpy().tobytes())
            h.update(torch.get_rng_state().numpy().tobytes())
            import random, numpy
            h.update(repr(random.getstate()).encode()); h.update(numpy.random.get_state()[1].tobytes())
            e["hash"] = h.hexdigest()[:16]
        events.append(e)
        save()

    def save():
        with open(path, "w") as f:
            json.dump(events, f)
    from torch.optim.optimizer import register_optimizer_step_post_hook
    register_optimizer_step_post_hook(post)
    if not digest:
        torch.Tensor.backward = new_back


def child(job):
    os.makedirs(job["dir"], exist_ok=True)
    os.chdir(job["dir"])
    fd = os.open("out.txt", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(fd, 1); os.dup2(fd, 2)
    os.environ["COLUMNS"] = "140"
    torch.set_num_threads(1)
    import random, numpy
    random.seed(0); numpy.random.seed(0)
    try:
        if job.get("trace"):
            instrument("trace.json", job.get("digest"))
        if job["mode"] == "bare":
            sys.argv = [job["script"]]
            sys.path[0] = os.path.dirname(os.path.abspath(job["script"]))
            runpy.run_path(job["script"], run_name="__main__")
            return 0
        sys.argv = ["numscope", *job["args"], job["script"]] if job.get("script") else ["numscope", *job["args"]]
        from numscope.cli.command import main
        return main() or 0
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else (0 if e.code is None else 1)
    except BaseException:
        traceback.print_exc()
        return 1


jobs = json.load(open(sys.argv[1]))
for job in jobs:
    t = time.time()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        rc = 1
        try:
            rc = child(job)
            sys.stdout.flush(); sys.stderr.flush()
            if not os.path.exists(job.get("modules", "x")) and job.get("modules"):
                json.dump([m for m in sys.modules if m not in before and m != "__main__" and not m.startswith("__mp")], open(job["modules"], "w"))
            import atexit
            atexit._run_exitfuncs()
        finally:
            sys.stdout.flush(); sys.stderr.flush()
            os._exit(rc)
    limit = time.time() + job.get("limit", 90)
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            rc = os.waitstatus_to_exitcode(status); break
        if time.time() > limit:
            os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0); rc = "timeout"; break
        time.sleep(0.02)
    with open(os.path.join(job["dir"], "rc"), "w") as f:
        f.write(str(rc))
    print(job["mode"], job["dir"], "rc", rc, f"{time.time()-t:.1f}s", flush=True)
