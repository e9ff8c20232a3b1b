"""Data loaders with each of Python's start methods: their workers import this program again, or are forked from it."""

import sys

import no_gpu  # noqa: F401
from made_up import Images

import actnn


class Counted(Images):
    """A class of the program itself, which workers must find."""

    level = actnn.config.activation_compression_bits


if __name__ == "__main__":
    for method in sys.argv[1:]:
        loader = actnn.DataLoader(Counted(16), batch_size=4, num_workers=1, multiprocessing_context=method)
        print(method, sorted(index for indices, _ in loader for index in indices.copy()) == list(range(16)), flush=True)
