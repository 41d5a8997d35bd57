"""joblib.Memory caches functions of __main__ (its folder is named after the script's path, the code is compared by inspect): a cached feature step before training hits the second time; files' names."""
# PRELUDE
import joblib

mem = joblib.Memory("cache", verbose=0)
calls = []


@mem.cache
def features(k):
    calls.append(k)
    return batch(k)[0].numpy() * 2


@mem.cache(ignore=["model"])
def embed(model, k):
    calls.append(("e", k))
    with torch.no_grad():
        return model(torch.from_numpy(features(k))).numpy()


m = net(1)
W(m)
print(H(features(1)), H(embed(m, 2)), train(m, torch.optim.SGD(m.parameters(), 0.05), 3), H(features(1)), H(embed(m, 2)), calls)
names = sorted(os.path.relpath(os.path.join(r, d), "cache") for r, ds, _ in os.walk("cache") for d in ds)
print([n.replace(os.getcwd().strip("/").replace("/", "-"), "CWD") for n in names], M(m))
if sys.argv[1:]:
    import shutil

    shutil.rmtree("cache")
