"""PYTHONMALLOC=debug and glibc's MALLOC_PERTURB_ fill freed memory with patterns, small mmap thresholds: nothing reads memory after it was freed; same bits."""
# PRELUDE
m = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.2), nn.Tanh(), nn.BatchNorm1d(64), nn.Linear(64, 4))
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2)
for e in range(5):
    print(train(m, opt, 4), R())
print(M(m))
