"""Ranks find each other and communicate."""
