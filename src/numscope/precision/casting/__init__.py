"""Casts to other number formats: scales, codes, counts."""
