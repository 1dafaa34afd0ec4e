"""What is known to differ from eager, by reason: strict expected failures, which mends end.

KNOWN names sequences, KNOWN_LOOPS training loops, KNOWN_TESTS tests of re-traces. EAGER names the
sequences that run as they are, with one warning, because no trace can hold them; MORE those with a
gradient where eager refuses, as a tensor that its backward needs was changed in place.
"""

from __future__ import annotations


def _named(groups: dict[str, str]) -> dict[str, str]:
    return {name: reason for reason, names in groups.items() for name in names.split()}


KNOWN = _named({
    "data changed behind autograd's back before the backward: docs/tracing.md says why": """
        between-parameter-data-changed between-argument-data-changed
    """,
})  # fmt: skip

EAGER = frozenset("""
    between-stored-retained hook-backward-pre-log-from-the-start hook-backward-pre-log-inner
        hook-backward-pre-scale-and-full-backward-log hook-full-backward-keep-from-the-start
        hook-full-backward-keep-inner hook-full-backward-log-from-the-start
        hook-full-backward-log-inner hook-full-backward-scale-from-the-start
        hook-full-backward-scale-inner hook-global-backward hook-pre-count-and-full-backward-scale
        hook-tensor-grad-fn-hook hook-tensor-grad-fn-pre-hook hook-tensor-hook-with-state
        hook-tensor-intermediate-log hook-tensor-intermediate-removed hook-tensor-multi-grad
        hook-tensor-retain-grad hook-tensor-save-on-cpu identity-dict-changed
        identity-float-int-bool identity-list-changed identity-module-argument
        identity-numpy-argument identity-numpy-scalar-argument identity-object-argument
        identity-object-mutated identity-same-view-changed
        identity-set-argument identity-shared-memory
        identity-slice-argument identity-subclass library-function-with-class-state
        in-place-data-saved in-place-detach- in-place-grad-fn-read in-place-grad-read
        in-place-leaf-data-after in-place-retain-grad in-place-swap-data in-place-version
        in-place-version-of-argument layout-as-strided layout-change-as-strided
        layout-change-numpy layout-change-set-data layout-change-to layout-change-view
        layout-reshape-shares layout-view library-codebook library-deepcopied-inside
        library-layer-drop library-replay-buffer library-thread-pool number-argument-numpy-array
        number-float-decimal number-float-distribution number-float-json number-float-numpy-array
        number-float-statistics number-int-decimal number-int-distribution number-int-json
        number-int-numpy-array number-int-statistics number-item-decimal number-item-distribution
        number-item-json number-item-numpy-array number-item-statistics
        state-ndarray-tensor-in-default-changed state-ndarray-tensor-in-global-bound
        state-ndarray-tensor-in-metaclass-bound state-ndarray-tensor-in-self-changed
        state-queue-in-function-attribute-changed state-queue-in-global-bound
        state-queue-in-kw-default-bound state-queue-in-self-changed
        state-tensor-in-parameter-attribute-bound switch-cwd switch-numpy-inside
        switch-saved-hooks-inside switch-seed switch-sparse switch-to-sparse switch-unique
        switch-vmap-inside write-append-numpy write-backward-inside write-beta-distribution
        write-count write-counter-tensor-read write-cycle write-data-loader write-date
        write-deque-popleft write-dict-iterator write-enumerate-object write-file-exists
        write-file-read write-file-write write-generator write-generator-send write-grad-written
        write-heap write-hook-in-function write-iterator-class write-lazy-linear
        write-lazy-parameter write-list-del write-map-object write-module-added
        write-next-exhausted write-next-iterator write-numpy-beta write-numpy-default-rng
        write-numpy-from-tensor write-numpy-permutation write-numpy-random
        write-numpy-random-array write-optimizer-inside write-parameter-replaced write-print
        write-print-every write-print-item write-print-tensor write-queue write-random-branch
        write-random-choice write-random-instance write-random-random write-random-unread
        write-reversed-object write-seed-inside write-stdout-write write-stop-iteration
        write-string-io write-counter-array-read write-numpy-written write-numpy-shared
        write-id-inside write-logging write-warn write-time write-time-order write-torch-save
        write-uuid identity-equal-id
    identity-generator-argument identity-is-global identity-is-previous
        identity-list-twice identity-object-with-tensor identity-tag-set
        layout-change-bernoulli layout-change-chunk layout-change-diagonal layout-change-fill
        layout-change-index-put layout-change-mask layout-change-normal layout-change-resize-
        layout-change-select layout-change-swap layout-change-t- layout-change-transpose-
        layout-change-unsqueeze- layout-change-zero-row number-int-type
        number-float-type number-item-type library-checkpoint between-state-before-backward
        switch-anomaly
    users-prune users-plain-subclass users-function-subclass users-weakref-cache users-func-inside
        users-pack users-optim-state-read users-partialmethod users-grad-read
        users-embedding-max-norm users-user-container users-moco users-meta-init
        users-raises-sometimes users-dict-pop
""".split())

MORE = frozenset("""
        in-place-detach-saved in-place-saved-changed in-place-saved-changed-exp
""".split())

KNOWN_LOOPS: dict[str, str] = {}

KNOWN_TESTS: dict[str, str] = {}
