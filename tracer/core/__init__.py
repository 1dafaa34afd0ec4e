"""What both tracers share: arguments, numbers, results, and the user's lines."""
