"""What people and programs touch: the command line, later HTTP and pages."""
