"""Linear layers whose three GEMMs run in other precisions."""
