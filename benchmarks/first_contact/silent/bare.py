"""bare.py NAME...: each case and its twin without numscope, in forked children of a process that has imported torch."""
import os, sys, time, warnings
import torch, torch._dynamo, torch.distributed, numpy  # noqa
torch.set_num_threads(1)
here = os.path.dirname(os.path.abspath(__file__)); os.chdir(here); os.makedirs("bare", exist_ok=True)
def one(name, healthy):
    base = f"bare/{name}{'--healthy' if healthy else ''}"
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        for n, fd in (("out", 1), ("err", 2)):
            f = os.open(f"{base}.{n}", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644); os.dup2(f, fd)
        import resource, runpy
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        sys.argv = [f"cases/{name}.py"] + (["--healthy"] if healthy else [])
        code = 0
        try: runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as e: code = int(e.code or 0)
        except BaseException:
            import traceback; traceback.print_exc(); code = 1
        sys.stdout.flush(); sys.stderr.flush(); os._exit(code)
    t = time.time(); _, status, use = os.wait4(pid, 0)
    end = [l.strip() for l in open(f"{base}.out") if l.startswith("end:")]
    with open("bare.tsv", "a") as f: f.write(f"{name}\t{'twin' if healthy else 'fault'}\t{os.waitstatus_to_exitcode(status)}\t{time.time()-t:.0f}\t{use.ru_utime+use.ru_stime:.1f}\t{end[-1] if end else ''}\n")
for name in sys.argv[1:]:
    if "\nRun: torchrun" in open(f"cases/{name}.py").read(): continue
    for h in (False, True): one(name, h)
