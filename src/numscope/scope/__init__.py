"""What a user holds: a watch on one model, or on all models of a script."""
