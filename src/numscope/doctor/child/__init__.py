"""The child process, which can be killed and runs everything that needs torch or NCCL."""
