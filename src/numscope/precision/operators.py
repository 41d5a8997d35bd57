"""The products of converted layers as operators that torch.compile takes as they are: what they compute is bitwise the eager result."""
