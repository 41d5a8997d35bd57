"""env -i: no PATH beyond the system's, no HOME, no TERM, no LANG; the environment that the script sees is as it was given."""
# PRELUDE
m = net(1)
W(m)
print(train(m, torch.optim.Adam(m.parameters(), 1e-2), 4), M(m))
print(sorted(k for k in os.environ if not k.startswith("FC_")), R())
