"""The script closes all descriptors above 2 (a daemon's habit) and trains on; descriptors that it opens then.

Source: invented
"""
# PRELUDE
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 2))
os.closerange(3, 256)
print(train(m, opt, 4), sorted(map(int, os.listdir("/proc/self/fd")))[:4]); f = open("a.txt", "w"); print(f.fileno(), train(m, opt, 2), M(m)); f.write("x")
