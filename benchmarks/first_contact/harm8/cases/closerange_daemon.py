# what: a daemonizing script forks twice, closes all file descriptors from 3 on and trains in the grandchild; harmless nan
# benign: yes
# PRELUDE
model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1)
print(train(model, opt, 2)); sys.stdout.flush()
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.dup2(w, 3); os.closerange(4, 256)
        v = train(model, opt, 3)
        with torch.no_grad(): z = model(batch(9)[0]); n = (z * 0 / (z * 0)).isnan().sum().item()
        open("daemon.txt", "w").write(f"{v} {n} {M(model)} {H(torch.get_rng_state())}\n"); os.write(3, b"done"); os._exit(0)
    os._exit(0)
os.close(w); print(os.read(r, 10)); os.wait(); print(open("daemon.txt").read())
os.closerange(3, 256)
print(train(model, opt, 3), M(model), R())
