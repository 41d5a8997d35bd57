"""What the doctor can find, and how it is told."""
