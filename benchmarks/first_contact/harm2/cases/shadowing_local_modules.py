"""The script's folder has modules with common names (records, cli, report, probe, config, utils, summary, detect, replay, inspect_, yaml, rich, pyarrow, duckdb, psutil, click): the script gets its own, and nothing breaks by them.

Source: https://github.com/pytorch/pytorch/issues/574
"""
# PRELUDE
names = "records cli report probe config utils summary detect replay runs storage view doctor precision yaml rich pyarrow duckdb psutil click tensorboard wandb mlflow".split()
for n in names:
    open(n + ".py", "w").write(f"who = 'local {n}'\nprint('imported', __name__)\n")
m = net(); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 4))
import importlib
for n in names:
    if n in sys.modules and not getattr(sys.modules[n], "who", None): continue
    try:
        print(importlib.import_module(n).who)
    except Exception as e:
        print(n, type(e).__name__, e)
print(train(m, opt, 4), M(m))
