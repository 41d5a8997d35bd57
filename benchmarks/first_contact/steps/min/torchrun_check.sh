cd ../out && OMP_NUM_THREADS=1 ../../venv/bin/torchrun --nproc-per-node 3 --master-port 29641 -m numscope run --check again:at=2 --json tr.json ../cases/ranks.py d05-averaged
