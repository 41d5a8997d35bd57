"""torch.package saves model and module source before training starts, another after (save_pickle only): names in the archive and a run of what was loaded.

Source: https://docs.pytorch.org/docs/stable/package.html
"""
# PRELUDE
from torch.package import PackageExporter, PackageImporter
import zipfile
m = net(); opt = torch.optim.SGD(m.parameters(), 0.1)
for k, f in enumerate(("a.zip", "b.zip")):
    with PackageExporter(f) as e:
        e.extern("**"); e.save_source_string("mine.mod", "x = 3\n"); e.save_pickle("model", "m.pkl", m); e.save_text("t", "t.txt", "text")
    print(sorted(n.split("/", 1)[1] for n in zipfile.ZipFile(f).namelist())); q = PackageImporter(f); k = q.load_pickle("model", "m.pkl"); print(M(k), q.import_module("mine.mod").x, train(k, torch.optim.SGD(k.parameters(), 0.1), 2))
    print(train(m, opt, 2)); os.remove(f)
