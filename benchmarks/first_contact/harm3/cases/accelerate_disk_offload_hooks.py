"""accelerate's offloading: weights live on disk and on meta, hooks load them for each forward; outputs, hooks taken away, then the model trains with its real weights."""
# PRELUDE
from accelerate import cpu_offload, disk_offload, init_empty_weights, load_checkpoint_and_dispatch
from accelerate.hooks import ModelHook, SequentialHook, add_hook_to_module, remove_hook_from_submodules

m = net(1)
W(m)
x, y = batch(0)
print(H(m(x)), train(m, torch.optim.SGD(m.parameters(), 0.1), 2))
torch.save(m.state_dict(), "w.pt")
disk_offload(m, offload_dir="off", execution_device=torch.device("cpu"))
print([p.device.type for p in m.parameters()], sorted(os.listdir("off")))
with torch.no_grad():
    print(H(m(x)), [p.device.type for p in m.parameters()])
log = []


class Own(ModelHook):
    def pre_forward(self, module, *a, **k):
        log.append("pre")
        return a, k

    def post_forward(self, module, out):
        log.append("post")
        return out * 1.0


remove_hook_from_submodules(m)
with init_empty_weights():
    e = net(1)
e = load_checkpoint_and_dispatch(e, "w.pt", device_map={"": "cpu"})
add_hook_to_module(e[0], SequentialHook(Own(), Own()), append=True)
W(e)
print(train(e, torch.optim.Adam(e.parameters(), 1e-2), 3), log, M(e))
remove_hook_from_submodules(e)
print(train(e, torch.optim.Adam(e.parameters(), 1e-2), 3), log == ["pre", "pre", "post", "post"] * 3, M(e))
import shutil

shutil.rmtree("off")
