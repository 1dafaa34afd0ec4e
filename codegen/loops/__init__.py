"""The loop IR: a fusion group as one nest of loops, its lowering and its interpreter."""
