"""Tools around autograd."""

from gradof.autograd.misc.flatten import flatten as flatten
from gradof.autograd.misc.tracers import const_graph as const_graph
