"""Paddle: bytes held between forward and backward and time of a step, for each level of ActNN and each batch size.

The bytes are those of Paddle's own allocator, which include what actzip keeps. With --host-cost: what packing and
unpacking a small tensor costs instead.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import paddle
from paddle.base import core

import actzip.paddle as actzip

from .errors import BenchError
from .paddle_train import MODELS
from .table import table

PLAIN = "exact"  #: the name of full precision in ActNN-PaddlePaddle


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", choices=MODELS, default="resnet18", help="of paddle.vision.models")
    parser.add_argument("--presets", nargs="+", default=["default", *(f"actnn:L{level}" for level in range(6))])
    parser.add_argument("--batches", nargs="+", type=int, default=[64])
    parser.add_argument("--input-size", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5, help="steps, of which the median counts")
    parser.add_argument("--host-cost", action="store_true", help="of hooks, for tensors of 16 elements, and nothing else")


def held_bytes() -> int:
    return core.host_memory_stat_current_value("Allocated", 0)


def measure(model: paddle.nn.Layer, preset: str, batch: int, size: int, repeats: int) -> tuple[int, float]:
    """Returns the bytes that a step holds, and its median time in seconds without the first two steps."""
    x, y = paddle.randn([batch, 3, size, size]), paddle.randint(0, 10, [batch])
    session = None if preset == PLAIN else actzip.Session(model, preset=preset)
    held, seconds = [], []
    for _ in range(repeats + 2):
        model.clear_gradients(set_to_zero=False)
        before, begin = held_bytes(), time.perf_counter()
        if session:
            with session:
                loss = paddle.nn.functional.cross_entropy(model(x), y)
        else:
            loss = paddle.nn.functional.cross_entropy(model(x), y)
        held.append(held_bytes() - before)
        loss.backward()
        seconds.append(time.perf_counter() - begin)
    return held[-1], statistics.median(seconds[2:])


def host_cost() -> list[list[str]]:
    """Returns rows with the CPU time in microseconds that hooks add to an operator which saves one small tensor."""
    count = 2000
    x = paddle.randn([4, 4])
    x.stop_gradient = False

    def forward() -> list[paddle.Tensor]:
        return [paddle.tanh(x) for _ in range(count)]

    def timed(run: Callable[[], object]) -> float:
        begin = time.process_time()  # CPU time, since other programs may be running
        run()
        return (time.process_time() - begin) / count * 1e6

    def once(session: actzip.Session | None) -> tuple[float, float]:
        if session:
            with session:
                results: list[paddle.Tensor] = []
                packed = timed(lambda: results.extend(forward()))
        else:
            results = []
            packed = timed(lambda: results.extend(forward()))
        total = paddle.add_n(results).sum()
        return packed, timed(total.backward)

    session = actzip.Session()
    runs: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for turn in range(52):  # the two alternate in going first, since the first one cleans up after the other
        for is_ours in (turn % 2 == 0, turn % 2 == 1):
            runs[is_ours].append(once(session if is_ours else None))
    plain, ours = ([statistics.median(run[part] for run in runs[which][2:]) for part in (0, 1)] for which in (False, True))
    return [[name, f"{before:.2f}", f"{after:.2f}", f"{after - before:.2f}"]
            for name, before, after in zip(("pack", "unpack"), plain, ours)]


def run(options: argparse.Namespace) -> int:
    if options.host_cost:
        print(table(["us a tensor", "plain", "actzip", "added"], host_cost()))
        return 0
    if options.repeats < 1:
        raise BenchError(f"{options.repeats} repeats (allowed: 1 or more)")
    rows = []
    for batch in options.batches:
        paddle.seed(0)
        model = getattr(paddle.vision.models, options.model)(num_classes=10)
        plain = measure(model, PLAIN, batch, options.input_size, options.repeats)
        for preset in (PLAIN, *options.presets):
            held, seconds = plain if preset == PLAIN else measure(model, preset, batch, options.input_size, options.repeats)
            rows.append([preset, batch, held, f"{plain[0] / held:.2f}", f"{1000 * seconds:.0f}", f"{batch / seconds:.1f}",
                         f"{plain[1] / seconds:.2f}"])
    print(f"{options.model}, {options.input_size} x {options.input_size}, Paddle {paddle.__version__}, "
          f"actzip {actzip.__version__}; 'exact' is full precision")
    print(table(["algorithm", "batch", "held bytes", "smaller", "ms a step", "images/s", "speed"], rows))
    return 0
