"""A run carried out in front of somebody: fed, worked on, watched, written."""
