"""What is known to differ from eager, by reason: strict expected failures, which mends end.

KNOWN names sequences, KNOWN_LOOPS training loops, KNOWN_TESTS tests of re-traces. EAGER names the
sequences that run as they are, with one warning, because no trace can hold them; MORE those with a
gradient where eager refuses, as a tensor that its backward needs was changed in place.
"""

from __future__ import annotations


def _named(groups: dict[str, str]) -> dict[str, str]:
    return {name: reason for reason, names in groups.items() for name in names.split()}


KNOWN = _named({
    "state that is read is not guarded": """
        state-np-float64-in-global-bound state-np-float64-in-inherited-bound
        state-np-float32-in-global-bound state-np-float32-in-shadowed-bound
        state-np-int-in-global-bound state-np-int-in-slot-bound state-np-bool-in-global-bound
        state-np-str-in-global-bound state-np-str-in-getattr-method-bound
        state-ndarray-in-global-bound state-ndarray-in-getattribute-bound
        state-ndarray-in-self-changed state-ndarray-in-descriptor-changed
        state-ndarray-tensor-in-global-bound state-ndarray-tensor-in-metaclass-bound
        state-ndarray-tensor-in-self-changed state-ndarray-tensor-in-default-changed
        state-enum-is-in-function-attribute-bound state-set-in-globals-call-bound
        state-set-in-self-changed state-set-in-vars-changed state-set-swap-in-self-changed
        state-set-swap-in-attrgetter-changed state-deque-in-self-changed
        state-deque-in-import-inside-changed state-deque-rotated-in-from-import-inside-bound
        state-deque-rotated-in-self-changed state-deque-rotated-in-module-attribute-changed
        state-array-in-context-variable-bound state-array-in-self-changed
        state-array-in-thread-local-changed state-bytearray-in-builtins-bound
        state-bytearray-in-self-changed state-bytearray-in-comprehension-changed
        state-memoryview-in-self-changed state-memoryview-in-static-method-changed
        state-tuple-in-frame-bound state-tuple-in-lru-cache-changed
        state-dict-in-tensor-attribute-changed state-dict-get-in-parameter-attribute-bound
        state-dict-order-in-self-changed state-dict-order-in-attribute-changed
        state-ordered-dict-in-self-changed state-ordered-dict-in-dict-changed
        state-namespace-in-metaclass-changed state-named-tuple-in-function-attribute-bound
        state-slots-in-globals-call-changed state-eq-method-in-eval-bound
        state-eq-method-in-import-inside-changed state-float-subclass-in-from-import-inside-bound
        state-list-subclass-in-context-variable-bound state-list-subclass-in-self-changed
        state-list-subclass-in-thread-local-changed state-fraction-in-builtins-bound
        state-class-in-frame-bound state-tensor-in-parameter-attribute-bound
        state-tensor-dtype-in-global-bound state-tensor-dtype-in-self-bound
        state-hasattr-in-self-changed state-hasattr-in-property-changed
        state-getattr-default-in-self-changed state-getattr-default-in-getattribute-changed
        state-lock-in-self-changed state-lock-in-default-changed
        state-queue-in-function-attribute-changed state-weakref-in-globals-call-changed
        state-np-float64-in-closure-bound state-np-float64-in-attribute-bound
        state-np-float64-in-self-bound state-np-float64-in-module-bound
        state-np-float64-in-method-bound state-np-float64-in-dict-bound
        state-np-float64-in-list-bound state-np-float64-in-deep-bound
        state-np-float64-in-class-attribute-bound state-np-float64-in-shadowed-bound
        state-np-float64-in-slot-bound state-np-float64-in-getattr-method-bound
        state-np-float64-in-getattribute-bound state-np-float64-in-descriptor-bound
        state-float-in-metaclass-bound state-bool-in-metaclass-bound
        state-np-float64-in-metaclass-bound state-np-float64-in-default-bound
        state-np-float64-in-kw-default-bound state-float-in-function-attribute-bound
        state-bool-in-function-attribute-bound state-np-float64-in-function-attribute-bound
        state-np-float64-in-helper-default-bound state-float-in-globals-call-bound
        state-bool-in-globals-call-bound state-np-float64-in-globals-call-bound
        state-np-float64-in-vars-bound state-np-float64-in-computed-name-bound
        state-np-float64-in-attrgetter-bound state-np-float64-in-reduce-bound
        state-float-in-eval-bound state-bool-in-eval-bound state-np-float64-in-eval-bound
        state-float-in-import-inside-bound state-bool-in-import-inside-bound
        state-np-float64-in-import-inside-bound state-float-in-from-import-inside-bound
        state-bool-in-from-import-inside-bound state-np-float64-in-from-import-inside-bound
        state-np-float64-in-module-attribute-bound state-float-in-context-variable-bound
        state-bool-in-context-variable-bound state-np-float64-in-context-variable-bound
        state-np-float64-in-thread-local-bound state-str-in-environment-bound
        state-float-in-builtins-bound state-bool-in-builtins-bound
        state-np-float64-in-builtins-bound state-np-float64-in-comprehension-bound
        state-np-float64-in-lambda-inside-bound state-np-float64-in-static-method-bound
        state-np-float64-in-class-method-bound state-np-float64-in-partial-bound
        state-np-float64-in-wrapped-bound state-np-float64-in-nested-module-bound
        state-np-float64-in-zip-bound state-np-float64-in-super-bound state-float-in-frame-bound
        state-bool-in-frame-bound state-np-float64-in-frame-bound state-float-in-lru-cache-bound
        state-bool-in-lru-cache-bound state-np-float64-in-lru-cache-bound
        state-np-float64-in-registry-bound state-float-in-tensor-attribute-bound
        state-bool-in-tensor-attribute-bound state-np-float64-in-tensor-attribute-bound
        state-float-in-parameter-attribute-bound state-bool-in-parameter-attribute-bound
        state-np-float64-in-parameter-attribute-bound state-list-in-metaclass-changed
        state-list-in-function-attribute-changed state-list-in-globals-call-changed
        state-list-in-eval-changed state-list-in-import-inside-changed
        state-list-in-from-import-inside-changed state-list-in-context-variable-changed
        state-list-in-builtins-changed state-list-in-frame-changed state-list-in-lru-cache-changed
        state-list-in-tensor-attribute-changed state-list-in-parameter-attribute-changed
        switch-deterministic switch-threads switch-precision switch-anomaly switch-print-options
        switch-decimal-context switch-cwd switch-argv switch-modules-table
    """,
    "writes and draws are not replayed": """
        write-counter-self-read write-counter-module-read write-counter-submodule-read
        write-counter-object-read write-counter-global-read write-counter-nonlocal-read
        write-counter-dict-read write-counter-defaultdict-read write-counter-counter-read
        write-counter-list-read write-counter-class-read write-counter-slot-read
        write-counter-property-read write-counter-setattr-method-read write-counter-function-read
        write-counter-default-read write-counter-array-read write-counter-bytearray-read
        write-counter-globals-call-read write-counter-module-attribute-read
        write-counter-thread-local-read write-counter-dataclass-read write-counter-deque-read
        write-counter-tensor-read write-counter-self-read-first write-counter-self-unread
        write-counter-self-branch write-counter-self-decay write-counter-global-read-first
        write-counter-global-unread write-counter-global-branch write-counter-global-decay
        write-counter-nonlocal-read-first write-counter-nonlocal-unread
        write-counter-nonlocal-branch write-counter-nonlocal-decay write-counter-dict-read-first
        write-counter-dict-unread write-counter-dict-branch write-counter-dict-decay
        write-append-tolist write-append-tensor write-append-tensor-with-graph write-append-numpy
        write-append-shape write-append-argument write-list-extend write-list-insert
        write-list-pop write-list-pop-empty write-list-del write-list-clear write-list-slice
        write-list-iadd write-list-fifo-of-tensors write-deque-popleft write-set-add
        write-set-seen-shape write-set-discard write-dict-cache write-dict-pop write-dict-del
        write-dict-update write-attribute-deleted write-lazy-mask write-lazy-buffer
        write-lazy-parameter write-lazy-linear write-kv-cache write-kv-cache-with-graph
        write-kv-cache-static write-hidden-state write-hidden-state-no-detach
        write-hidden-state-list write-store-argument write-store-previous-argument
        write-store-activation write-ema-rebind write-best-kept write-warm-up write-annealed
        write-cosine write-every-other write-power-of-step write-step-as-size write-step-in-range
        write-step-in-tensor write-step-in-full write-step-in-string write-step-as-key
        write-step-returned write-order-of-writes write-write-then-read-back
        write-two-names-of-one write-fresh-list write-fresh-dict-of-tensors
        write-class-made-inside write-exception-after-write write-exception-caught write-finally
        write-context-manager write-os-environ write-context-variable write-lru-cache-tensor
        write-heap write-queue write-numpy-written write-numpy-from-tensor write-numpy-shared
        write-tensor-list write-metric-update write-hook-in-function write-grad-written
        write-backward-inside write-optimizer-inside write-parameter-replaced write-module-added
        write-thread-inside write-id-inside write-recursion write-del-global
        write-del-global-missing write-exec-inside write-string-builder write-bool-toggle
        write-enum-cycle write-none-then-tensor write-swap-modules write-train-inside
        write-next-iterator write-next-exhausted write-stop-iteration write-count write-cycle
        write-generator write-generator-send write-map-object write-enumerate-object
        write-reversed-object write-iterator-class write-dict-iterator write-data-loader
        write-random-random write-random-unread write-random-choice write-random-instance
        write-random-branch write-numpy-random write-numpy-beta write-numpy-default-rng
        write-numpy-permutation write-numpy-random-array write-beta-distribution write-seed-inside
        write-uuid write-time write-time-order write-date write-print write-print-tensor
        write-print-every write-stdout-write write-string-io write-file-write write-file-read
        write-file-exists write-torch-save write-logging write-warn
    """,
    "strides and offsets are not part of a signature": """
        layout-contiguous-is layout-reshape-shares layout-view layout-stride layout-stride-tuple
        layout-is-contiguous layout-storage-offset layout-as-strided layout-clone-stride
        layout-empty-like layout-mul-stride layout-result-kept layout-change-contiguous
        layout-change-reshape layout-change-ravel layout-change-flatten layout-change-view
        layout-change-diagonal layout-change-as-strided layout-change-select layout-change-mask
        layout-change-index-put layout-change-chunk layout-change-swap layout-change-fill
        layout-change-zero-row layout-change-normal layout-change-bernoulli layout-change-dropout
        layout-change-t- layout-change-transpose- layout-change-unsqueeze- layout-change-resize-
        layout-change-set-data layout-change-numpy layout-image-pool layout-image-read
        layout-image-to
    """,
    "in-place changes beside autograd": """
        in-place-data-saved in-place-leaf-data-after in-place-zero-of-graph
        in-place-normal-of-graph in-place-copy-of-graph in-place-detach- in-place-retain-grad
        in-place-grad-read in-place-expand-changed in-place-swap-data
    """,
    "what torch does that a trace cannot hold": """
        switch-seed switch-vmap-inside switch-grad-inside switch-record-function
        switch-saved-hooks-inside switch-tolist switch-numpy-inside switch-unique switch-sparse
        switch-to-sparse
    """,
    "who is who among arguments, and arguments that are no tensors": """
        identity-same-twice identity-same-of-three identity-equal-id identity-in-list
        identity-list-twice identity-dict-key identity-in-set identity-is-global
        identity-is-previous identity-parameter identity-parameter-argument identity-type
        identity-subclass identity-buffer identity-attribute-of-tensor identity-tag-set
        identity-shared-memory identity-same-changed identity-same-view-changed
        identity-float-int-bool identity-dict-changed identity-list-changed
        identity-object-argument identity-object-with-tensor identity-object-mutated
        identity-module-argument identity-set-argument identity-numpy-argument
        identity-numpy-scalar-argument identity-generator-argument identity-slice-argument
    """,
    "hooks of modules and tensors are not all run": """
        hook-forward-count-inner hook-forward-log-tensor-inner hook-forward-always-inner
        hook-forward-prepend-inner hook-pre-count-inner hook-pre-sets-state-inner
        hook-full-backward-scale-inner hook-full-backward-log-inner hook-full-backward-keep-inner
        hook-backward-pre-scale-inner hook-backward-pre-log-inner
        hook-forward-count-from-the-start hook-forward-log-tensor-from-the-start
        hook-forward-always-from-the-start hook-forward-prepend-from-the-start
        hook-pre-count-from-the-start hook-pre-sets-state-from-the-start
        hook-full-backward-scale-from-the-start hook-full-backward-log-from-the-start
        hook-full-backward-keep-from-the-start hook-backward-pre-scale-from-the-start
        hook-backward-pre-log-from-the-start hook-pre-count-and-full-backward-scale
        hook-backward-pre-scale-and-full-backward-log hook-tensor-intermediate
        hook-tensor-intermediate-log hook-tensor-intermediate-of-branch
        hook-tensor-intermediate-removed hook-tensor-retain-grad hook-tensor-multi-grad
        hook-tensor-grad-fn-hook hook-tensor-grad-fn-pre-hook hook-tensor-hook-with-state
        hook-global-forward hook-global-forward-replace hook-global-pre hook-global-backward
    """,
})  # fmt: skip

EAGER = frozenset("""

""".split())

MORE = frozenset("""
        in-place-detach-saved in-place-saved-changed in-place-saved-changed-exp
""".split())

KNOWN_LOOPS: dict[str, str] = {
    "gan": "traced again at every step",
    "vae": "traced again at every step",
    "siamese": "traced again at every step",
    "mixup": "traced again at every step",
    "freezing": "traced again at every step",
    "language-model": "traced again at every step",
    "language-model-bfloat16": "traced again at every step",
    "actor-critic": "traced again at every step",
    "sam": "traced again at every step",
    "style-transfer": "stores tensors",
    "word-language-model": "stores tensors",
    "truncated-lstm": "stores tensors",
    "mixup-inside": "draws numbers of Python's and numpy's",
    "lbfgs": "has no arguments",
}

KNOWN_TESTS: dict[str, str] = {
    "test_a_loss_that_is_logged_forty_times_is_traced_twice": "each value or shape is traced",
    "test_an_annealed_weight_and_a_counter_are_traced_twice": "each value or shape is traced",
    "test_shapes_that_come_once_are_not_traced": "each value or shape is traced",
    "test_generating_with_a_growing_prefix_is_traced_a_few_times": "each value or shape is traced",
    "test_a_hundred_thousand_calls_in_bounded_memory": "each value or shape is traced",
    "test_two_hundred_shapes_keep_a_bounded_number_of_entries": "nothing is evicted",
    "test_a_thousand_shapes_in_bounded_memory": "nothing is evicted",
}
