"""What each rank examines, one file per phase."""
