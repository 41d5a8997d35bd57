"""How ranks find each other and communicate."""
