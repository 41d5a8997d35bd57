"""The script redirects descriptors 1 and 2 itself by dup2 into files, closes them, opens others in their place, and restores them.

Source: https://github.com/wandb/wandb/pull/3031 (streams that go away)
"""
# PRELUDE
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 1), flush=True)
s1, s2 = os.dup(1), os.dup(2); f = os.open("both.txt", os.O_CREAT | os.O_WRONLY, 0o644); os.dup2(f, 1); os.dup2(f, 2)
print(train(m, opt, 2), flush=True); os.system("echo from a child"); sys.stderr.write("err\n"); sys.stderr.flush()
os.close(2); g = os.open("data.bin", os.O_CREAT | os.O_WRONLY, 0o644); os.write(g, b"only mine"); train(m, opt, 2); os.close(g)
os.dup2(s1, 1); os.dup2(s2, 2); print(g, train(m, opt, 2), M(m)); sys.stderr = open("err.txt", "w"); train(m, opt, 1); sys.stderr.close(); sys.stderr = None; print(train(m, opt, 2))
