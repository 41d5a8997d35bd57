"""The phases that a rank runs without torch, one file each."""
