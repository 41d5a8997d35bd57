"""ASCII streams, C locale, UTF-8 mode off: names of modules and files outside ASCII, setlocale of the script.

Source: https://github.com/colmap/colmap/issues/4315 (the process's locale matters to numbers)
"""
# PRELUDE
import locale
print(sys.stdout.encoding, sys.stdout.errors, locale.getpreferredencoding(False), sys.flags.utf8_mode, locale.setlocale(locale.LC_ALL))
class Größe(nn.Module):
    def __init__(self): super().__init__(); self.add_module("schicht_ä", nn.Linear(8, 4))
    def forward(self, x): return getattr(self, "schicht_ä")(x)
torch.manual_seed(0); m = Größe(); print(list(m.state_dict()), repr(m), train(m, torch.optim.SGD(m.parameters(), 0.1), 3))
try:
    open("übung.txt", "w", encoding="utf-8").write("ß")
except UnicodeEncodeError as e: print(e)
print(sorted(os.listdir(".")), locale.localeconv()["decimal_point"], "\udc80")
