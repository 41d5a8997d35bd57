"""Two processes of the same script at once in one folder (a sweep in the background of a shell): files, outputs and statuses of both."""
# PRELUDE
k = int(sys.argv[1])
m = net(k)
W(m)
print(k, train(m, torch.optim.SGD(m.parameters(), 0.1), 5), M(m))
torch.save(m.state_dict(), f"w{k}.pt")
sys.exit(k)
