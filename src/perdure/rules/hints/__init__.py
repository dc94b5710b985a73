"""What a server says about when to come back."""
