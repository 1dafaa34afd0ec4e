"""What runs emitted code: LLVM in this process, threads, and source made callable."""
