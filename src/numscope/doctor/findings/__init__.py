"""What the doctor can find, and how findings are worded."""
