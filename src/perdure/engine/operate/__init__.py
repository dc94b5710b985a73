"""What people and programs do to jobs from outside: cancel, retry, run now, re-drive, follow."""
