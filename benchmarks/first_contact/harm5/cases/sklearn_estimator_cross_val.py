"""A scikit-learn estimator of one's own around a torch model: clone, Pipeline, cross_val_predict, RandomizedSearchCV with joblib threads, joblib dump; skorch with Checkpoint, TrainEndCheckpoint, EarlyStopping and Freezer."""
# PRELUDE
import joblib, warnings
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.model_selection import cross_val_predict, RandomizedSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
class Reg(RegressorMixin, BaseEstimator):
    def __init__(self, h=8, lr=0.05, seed=0):
        self.h, self.lr, self.seed = h, lr, seed
    def fit(self, X, y):
        self.model_ = net(self.seed, X.shape[1], self.h, 1)
        W(self.model_)
        opt = torch.optim.Adam(self.model_.parameters(), self.lr)
        X, y = torch.as_tensor(X).float(), torch.as_tensor(y).float()[:, None]
        for _ in range(8):
            opt.zero_grad()
            F.mse_loss(self.model_(X), y).backward()
            opt.step()
        return self
    def predict(self, X):
        with torch.no_grad():
            return self.model_(torch.as_tensor(X).float())[:, 0].numpy()
x, y = batch(0, 40)
X, Y = x.numpy(), y[:, 0].numpy()
p = make_pipeline(StandardScaler(), Reg())
print(H(cross_val_predict(p, X, Y, cv=4)))
s = RandomizedSearchCV(p, {"reg__h": [4, 8, 12], "reg__lr": [0.01, 0.1]}, n_iter=3, cv=2, random_state=1, n_jobs=1).fit(X, Y)
print(s.best_params_, H(s.cv_results_["mean_test_score"]), M(s.best_estimator_[-1].model_))
joblib.dump(s.best_estimator_, "e.joblib", compress=3)
print(H(joblib.load("e.joblib").predict(X)), type(clone(p)).__name__)
from skorch import NeuralNetRegressor
from skorch.callbacks import Checkpoint, TrainEndCheckpoint, EarlyStopping, Freezer, LRScheduler
class Mod(nn.Module):
    def __init__(self, h=8):
        super().__init__()
        self.a, self.b = nn.Linear(8, h), nn.Linear(h, 1)
    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))
torch.manual_seed(5)
n = NeuralNetRegressor(Mod, max_epochs=5, lr=0.05, verbose=0, iterator_train__shuffle=True, callbacks=[("c", Checkpoint(dirname="sk", f_history=None)), ("t", TrainEndCheckpoint(dirname="sk", fn_prefix="end_", f_history=None)), EarlyStopping(patience=3), Freezer("a.bias"), LRScheduler("StepLR", step_size=2)])
n.initialize()
W(n.module_)
n.partial_fit(X, Y[:, None])
print([float(v).hex() for v in n.history[:, "train_loss"]], M(n.module_), R())
os.remove("e.joblib")
