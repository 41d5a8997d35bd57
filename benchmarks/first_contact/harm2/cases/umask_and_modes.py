"""umask 077 and 000: the modes of files that the script, torch.save and children write.

Source: https://github.com/NatLibFi/Annif/pull/832
"""
# PRELUDE
os.umask(0o077); m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1)
print(train(m, opt, 2)); torch.save(m.state_dict(), "a.pt"); os.makedirs("d/e"); os.umask(0o000); train(m, opt, 2)
torch.save(m.state_dict(), "b.pt"); open("c", "w").close(); os.system("touch by_child; mkdir cd"); os.umask(0o027); print(train(m, opt, 2), oct(os.umask(0o22)))
