"""f and df as files of their own, which do not import gradof."""
