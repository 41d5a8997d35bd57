"""What NCCL's logs, flight-recorder dumps and torchrun's output say."""
