"""The `gradof` command."""
