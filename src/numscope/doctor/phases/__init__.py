"""What each rank examines, a phase a file."""
