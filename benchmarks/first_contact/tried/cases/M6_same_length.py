# shortest script of B25: class weights as long as the batch
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 4)
    def forward(self, x, y, weight):
        return torch.nn.functional.cross_entropy(self.fc(x.log()), y, weight=weight)
model = Net()
x = torch.ones(4, 2)
x[1] = -1
model(x, torch.arange(4), torch.ones(4)).backward()
torch.optim.SGD(model.parameters()).step()
