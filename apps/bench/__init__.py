"""What compression costs in a real training step, and what it does to real training.

``python -m actzip.bench fidelity`` trains the same networks with and without it and compares what comes out;
``python -m actzip.bench train`` compares time and memory of a step with plain PyTorch, checkpointing and offloading;
``python -m actzip.bench link`` measures copies between a GPU and the host, and those of a session that offloads;
``python -m actzip.bench sensitivity`` shows what each row of the policy is worth;
``python -m actzip.bench division`` takes activations apart as that preset does (docs/division.md). docs/benchmarks.md
has the results.
"""
