"""skorch in scikit-learn's GridSearchCV (clones, pickles, early stopping): scores and best weights.

Source: https://github.com/skorch-dev/skorch/issues/833
"""
# PRELUDE
from skorch import NeuralNetRegressor
from sklearn.model_selection import GridSearchCV
class Net(nn.Module):
    def __init__(self, h=4):
        super().__init__()
        self.a, self.b = nn.Linear(3, h), nn.Linear(h, 1)
    def forward(self, X):
        return self.b(torch.relu(self.a(X)))
torch.manual_seed(0); np.random.seed(0)
X = np.random.randn(40, 3).astype(np.float32); y = X[:, :1] * 2
n = NeuralNetRegressor(Net, max_epochs=3, lr=0.1, verbose=0, train_split=None, iterator_train__shuffle=True)
gs = GridSearchCV(n, {"module__h": [3, 5], "lr": [0.05, 0.1]}, cv=2, scoring="neg_mean_squared_error")
gs.fit(X, y)
print(gs.best_params_, [float(v).hex() for v in gs.cv_results_["mean_test_score"]])
import pickle
print(H(pickle.loads(pickle.dumps(gs.best_estimator_)).predict(X)), R())
