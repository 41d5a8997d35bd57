r"""A script whose name has spaces, quotes, umlauts, a newline, no .py, reached by a symbolic link in another folder, with a shebang.

source: poe-platform/poe-code#647 (odd operands); python docs sys.path[0] and links
meta: {"setup": "mkdir -p 'real dir/é' links; n=$'tr\\u00e4in \"it\" \\'now\\'\\n.txt'; (echo '#!/usr/bin/env python'; cat odd_names_symlink.py) > \"real dir/é/$n\"; echo 'B = 7' > 'real dir/é/beside.py'; echo 'B = 8' > links/beside.py; ln -s \"../real dir/é/$n\" links/go", "script": ["links/go"], "args": ["ä b", "\u001b[31m"]}
"""
import os
import sys
import torch
import beside
from fcw import mlp, say, seed, sha, train, watch, weights

seed(118)
model = mlp()
watch(model)
say(beside.B, os.path.basename(sys.path[0]), ascii(sys.argv), ascii(os.path.basename(__file__)), train(model, torch.optim.SGD(model.parameters(), 0.1), 2), sha(weights(model)))
