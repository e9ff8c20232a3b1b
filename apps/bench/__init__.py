"""What compression costs in a training step, and how it affects real training.

``python -m actzip.bench fidelity`` trains the same networks with and without compression and compares the results;
``python -m actzip.bench train`` compares time and memory of a step with plain PyTorch, checkpointing and offloading;
``python -m actzip.bench link`` measures copies between a GPU and the host, and those of a session that offloads;
``python -m actzip.bench sensitivity`` shows what each row of the policy contributes to the gradient's error;
``python -m actzip.bench plan`` compares observed with measured sensitivities, and measures plans;
``python -m actzip.bench budget`` checks byte budgets, and what they cost;
``python -m actzip.bench division`` divides activations as that preset does (docs/division.md). docs/benchmarks.md has
the results.
"""
