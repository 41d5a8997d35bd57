"""The user's side: a watch on one model, or on all models of a script."""
