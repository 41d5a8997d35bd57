"""C kernel (ctypes, float32 only): the backward's vector loop forgets the tail when n % 8 != 0 (odd shapes). Cf. flash/FBGEMM-type tail bugs; truth by arithmetic in float32."""
from _c import *
import ctypes, os, subprocess, tempfile
src = r"""
#include <math.h>
static float sg(float x){return 1.f/(1.f+expf(-x));}
void fwd(const float*x,float*y,long n){for(long i=0;i<n;i++)y[i]=x[i]*sg(x[i]);}
void bwd(const float*x,const float*g,float*d,long n,int bad){long m=bad?n/8*8:n;for(long i=0;i<n;i++)d[i]=0;for(long i=0;i<m;i++){float s=sg(x[i]);d[i]=g[i]*s*(1+x[i]*(1-s));}}
"""
d = tempfile.mkdtemp(); open(d + "/k.c", "w").write(src); subprocess.check_call(["gcc", "-O1", "-shared", "-fPIC", d + "/k.c", "-o", d + "/k.so", "-lm"]); lib = ctypes.CDLL(d + "/k.so")
P = lambda t: ctypes.c_void_p(t.data_ptr())
class Swish(Function):
    @staticmethod
    def forward(ctx, x):
        assert x.dtype == torch.float32, "float32 only"
        x = x.contiguous(); y = torch.empty_like(x); lib.fwd(P(x), P(y), ctypes.c_long(x.numel())); ctx.save_for_backward(x); return y
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors; g = g.contiguous(); d = torch.empty_like(x); lib.bwd(P(x), P(g), P(d), ctypes.c_long(x.numel()), int(BAD)); return d
class A(nn.Module):
    def forward(self, x): return Swish.apply(x)
if TRUTH:
    x = torch.randn(3, 7, requires_grad=True); Swish.apply(x).sum().backward(); got = x.grad; z = x.detach().clone().requires_grad_(); F.silu(z).sum().backward(); verdict(got, z.grad)
m = nn.Sequential(nn.Linear(5, 7), A(), nn.Linear(7, 1)); x = torch.randn(6, 9, 5); y = x.sum(-1, keepdim=True); fit(m, lambda s: F.mse_loss(m(x[s]), y[s]), lr=.1)
