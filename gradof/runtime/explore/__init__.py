"""`gradof explore` and `fn.explore()`: the whole compilation of one call as one page.

    page = loss.explore(x, w)       `data`, `html`, `write(path)`
    model ──▶ {views: lines, each with the nodes of the trace it comes from} ──▶ static/ ──▶ HTML

`model` says what the page is told. The trace is stamped (Note [Lines carry origins] in
`gradof.ir.origins`), so that each line of each view, a pass's, a kernel's or an emitted source's,
knows the nodes it comes from, and they the user's line.
"""
