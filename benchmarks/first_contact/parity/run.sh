#!/bin/bash
# ./run.sh [CASE...]: each case under numscope parity, one at a time. Needs numscope's environment first in PATH.
cd "$(dirname "$0")"; mkdir -p out
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
[ $# = 0 ] && set -- $(ls cases | sed -n 's/^\([fh][0-9].*\)\.py$/\1/p')
for c in "$@"; do
  start=$(date +%s)
  if grep -q '\bB\b' cases/$c.py; then b="python cases/$c.py --b"; else b="torchrun --standalone --nproc-per-node 2 cases/$c.py"; fi
  nice -n 15 timeout 150 numscope parity $( [[ $c = f14* ]] && echo 3) out/$c -- python cases/$c.py -- $b > out/$c.txt 2>&1; rc=$?
  echo "$rc $(( $(date +%s) - start ))" > out/$c.rc
  echo "== $c: exit $rc, $(( $(date +%s) - start )) s"; tail -c 1500 out/$c.txt
done
