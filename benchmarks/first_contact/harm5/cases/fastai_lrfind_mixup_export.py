"""fastai: lr_find (saves and loads a temporary model), fit_one_cycle with MixUp and gradient accumulation, gradual unfreezing, export and load_learner, predictions."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
from fastai.learner import Learner, load_learner
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader as DL
from fastai.callback.mixup import MixUp
from fastai.callback.training import GradientAccumulation, GradientClip
from fastai.callback.schedule import *
from fastai.callback.tracker import SaveModelCallback
from fastai.losses import CrossEntropyLossFlat
from fastai.metrics import accuracy
from fastai.torch_core import set_seed
class D:
    def __len__(self): return 32
    def new_empty(self): return self
    def __getitem__(self, i):
        return batch(i, 1)[0][0], torch.tensor(i % 4)
set_seed(5, reproducible=False)
dls = DataLoaders(DL(D(), bs=8, shuffle=True, num_workers=0), DL(D(), bs=8, num_workers=0))
def splitter(m): return [list(m[:2].parameters()), list(m[2:].parameters())]
m = net(2)
W(m)
l = Learner(dls, m, loss_func=CrossEntropyLossFlat(), metrics=accuracy, splitter=splitter, cbs=[GradientAccumulation(16), GradientClip(0.5)])
with l.no_bar(), l.no_logging():
    print(l.lr_find(show_plot=False, num_it=15), M(m))
    l.freeze()
    l.fit_one_cycle(2, 1e-2, cbs=[MixUp(0.4)])
    l.unfreeze()
    l.fit_one_cycle(2, slice(1e-4, 1e-2), cbs=[SaveModelCallback(monitor="valid_loss", fname="best")])
    print([[float(v).hex() for v in r] for r in l.recorder.values], M(m))
    l.remove_cb(GradientAccumulation)
    l.export("l.pkl")
    p, t = l.get_preds()
    print(H(p, t), R())
l2 = load_learner("l.pkl")
print(M(l2.model) == M(m), type(l2).__name__)
os.remove("l.pkl")
