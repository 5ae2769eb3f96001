"""Code that computes attention over a layout; one file or folder for each backend."""
