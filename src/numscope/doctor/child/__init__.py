"""What runs in child processes that can be killed: all that needs torch or NCCL."""
