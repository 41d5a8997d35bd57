"""What runs in a child process that can be killed: everything that needs torch or NCCL."""
