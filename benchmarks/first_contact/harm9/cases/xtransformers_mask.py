"""x-transformers and ema-pytorch: masks with -max, alibi, sandwich norm; an autoregressive wrapper with top-k generation; EMA copies of the model."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
from x_transformers import TransformerWrapper, Decoder, AutoregressiveWrapper
from ema_pytorch import EMA
seed(60)
net = AutoregressiveWrapper(TransformerWrapper(num_tokens=20, max_seq_len=24, attn_layers=Decoder(dim=16, depth=2, heads=2, attn_dim_head=8, alibi_pos_bias=True, ff_glu=True, attn_dropout=0.1)))
ema = EMA(net, beta=0.9, update_every=2, update_after_step=2)
watch(net)
opt = torch.optim.AdamW(net.parameters(), 3e-3)
for step in range(10):
    t = torch.randint(0, 20, (4, 16))
    loss = net(t)
    opt.zero_grad(); loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    opt.step(); ema.update()
    if step % 4 == 3:
        ema.ema_model.eval()
        g = ema.ema_model.generate(t[:1, :4], 6, temperature=0.8)
        net.eval()
        g2 = net.generate(t[:2, :4], 5, temperature=1.0, filter_kwargs={"k": 3})
        net.train()
        print(dig(g, g2))
    print(step, dig(loss))
end(net, opt, dict(ema.state_dict()))
