"""What the doctor makes of what it was told: one function for each line, and every threshold with its reason."""
