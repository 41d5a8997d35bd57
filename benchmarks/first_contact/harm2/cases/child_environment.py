"""Child processes by subprocess, os.system, os.popen: environment variables, PYTHONPATH, imported modules, flags, descriptors they inherit.

Source: https://github.com/pyutils/line_profiler/pull/431 (children of a profiled script)
"""
# PRELUDE
import subprocess
m = net(); print(train(m, torch.optim.SGD(m.parameters(), 0.1), 2))
env = {k: v for k, v in os.environ.items() if k not in ("_", "FC_MARK", "SHLVL", "OLDPWD")}
print(sorted(env), H(sorted(env.items())))
code = "import os, sys; print(sorted(k for k in sys.modules if 'numscope' in k or k in ('sitecustomize','usercustomize')), [p for p in sys.path if 'numscope' in p], list(sys.flags), sorted(os.listdir('/proc/self/fd')), os.environ.get('PYTHONPATH'), sys.argv)"
print(subprocess.run([sys.executable, "-c", code, "a"], capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout)
print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL, close_fds=False).stdout)
print(os.popen(f"{sys.executable} -c 'import torch; print(torch.nn.Linear(1,1).__class__, torch.get_default_dtype())'").read(), subprocess.call([sys.executable, "-c", "raise SystemExit(9)"]), os.system("exit 3") >> 8)
