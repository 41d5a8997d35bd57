# what: attributions (integrated gradients, DeepLift by hooks, layer conductance, occlusion) by captum between training steps
# cmp: status stdout files left
# PRELUDE
import warnings; warnings.simplefilter("ignore")
from captum.attr import IntegratedGradients, DeepLift, LayerConductance, Occlusion, GuidedBackprop, LayerGradCam
model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1)
for s in range(3):
    print(train(model, opt, 2, 2 * s)); model.eval(); x = batch(20 + s)[0].requires_grad_()
    print(H(IntegratedGradients(model).attribute(x, target=1, n_steps=8)), H(DeepLift(model).attribute(x, x.detach() * 0, target=0)), H(LayerConductance(model, model[2]).attribute(x, target=2, n_steps=5)))
    print(H(Occlusion(model).attribute(x, (3,), target=1)), H(GuidedBackprop(model).attribute(x, target=1)), M(model)); model.train()
    print([len(list(m._forward_hooks.values())) for m in model.modules()], [len(m._backward_hooks) for m in model.modules()])
print(M(model), R())
