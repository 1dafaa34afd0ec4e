"""Elements further than 2**31 apart, in triton's interpreter; `python -m` prints what it read."""

from __future__ import annotations

import json

import torch

from gradof.codegen.triton.kernel import TritonKernel
from tests.codegen.triton_index import nest_of

FAR = 1 << 31


def main() -> None:
    """Two rows, the second 2**31 elements behind the first: what lies between is never touched."""
    memory = torch.empty(FAR + 8, dtype=torch.bool)
    given = memory.as_strided((2, 5), (FAR, 1))
    given.copy_(torch.tensor([[1, 0, 0, 1, 0], [0, 0, 1, 1, 1]]))
    kernel = TritonKernel(nest_of("graph f(%x : bool[2,5]):\n %y : bool[2,5] = logical_not(%x)\n"
                                  " return (%y)"))  # fmt: skip
    (found,) = kernel(given)
    print(json.dumps(found.int().tolist()))


if __name__ == "__main__":
    main()
