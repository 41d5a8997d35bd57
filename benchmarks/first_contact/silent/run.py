"""run.py [--again] NAME...: each case and its twin once under `numscope run` with default options, one after the other.

Writes tool/NAME.out, .err, and a line to runs.tsv: name, which, exit status, wall seconds, CPU seconds, number of alerts.
A run is stopped after 600 s of wall time or 150 s of CPU time. Without names: all cases.
"""
import os, re, resource, subprocess, sys, time

os.chdir(os.path.dirname(os.path.abspath(__file__)))
venv = os.environ.get("FC_VENV", "../venv")
again = "--again" in sys.argv
names = [n for n in sys.argv[1:] if n != "--again"] or sorted(f[:-3] for f in os.listdir("cases") if f.endswith(".py"))
folder, table = ("again", "again.tsv") if again else ("tool", "runs.tsv")
os.makedirs(folder, exist_ok=True)
env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def limits():
    resource.setrlimit(resource.RLIMIT_CPU, (150, 150))


for name in names:
    ranks = "\nRun: torchrun" in open(f"cases/{name}.py").read()
    for which in ("fault",) if name.startswith("c_") else ("fault", "twin"):
        base = f"{folder}/{name}" + ("--healthy" if which == "twin" else "")
        if os.path.exists(base + ".rc"):
            continue
        command = [f"{venv}/bin/numscope", "run"]
        if ranks:
            command = [f"{venv}/bin/torchrun", "--nproc-per-node", "2", "--standalone", "-m", "numscope", "run"]
        command += [f"cases/{name}.py"] + (["--healthy"] if which == "twin" else [])
        start, before = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
        with open(base + ".out", "w") as out, open(base + ".err", "w") as err:
            try:
                code = subprocess.run(command, stdout=out, stderr=err, env=env, preexec_fn=limits, timeout=600).returncode
            except subprocess.TimeoutExpired:
                code = 124
        use = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = use.ru_utime + use.ru_stime - before.ru_utime - before.ru_stime
        alerts = len(re.findall(r"^numscope: alert:", open(base + ".err").read(), re.M))
        open(base + ".rc", "w").write(str(code))
        with open(table, "a") as f:
            f.write(f"{name}\t{which}\t{code}\t{time.time() - start:.0f}\t{cpu:.1f}\t{alerts}\n")
