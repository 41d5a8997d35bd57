# what: skorch in a scikit-learn grid search with a scorer that gives nan, pickled net, clone, history
# benign: yes
# watch: no
# cmp: status stdout files left
# PRELUDE
import warnings; warnings.simplefilter("ignore")
from skorch import NeuralNetRegressor
from skorch.callbacks import EpochScoring, Checkpoint
from sklearn.model_selection import GridSearchCV
import pickle
X = torch.cat([batch(s)[0] for s in range(6)]).numpy(); y = torch.cat([batch(s)[1] for s in range(6)]).numpy()
class Mod(nn.Module):
    def __init__(self, h=8): super().__init__(); self.f = nn.Sequential(nn.Linear(8, h), nn.ReLU(), nn.Linear(h, 4))
    def forward(self, x): return self.f(x)
def nanscore(net, X, y): return float("nan")
n = NeuralNetRegressor(Mod, max_epochs=3, lr=.05, batch_size=8, iterator_train__shuffle=True, verbose=0, callbacks=[("nan", EpochScoring(nanscore, name="nan")), Checkpoint(dirname="ck", monitor=None, f_history=None)])
torch.manual_seed(3); n.fit(X, y); print([(r["train_loss"].hex(), r["valid_loss"].hex(), r["nan"]) for r in n.history])
gs = GridSearchCV(n, {"lr": [.01, .1], "module__h": [4, 8]}, cv=2, scoring=lambda e, X, y: float("nan") if e.lr > .05 else float(e.predict(X).mean()), refit=False, error_score=np.nan); torch.manual_seed(5); gs.fit(X, y)
print(gs.cv_results_["mean_test_score"].tolist(), M(n.module_), len(pickle.loads(pickle.dumps(n)).history), R())
