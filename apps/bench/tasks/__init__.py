"""Data set, network and recipe of each task that is trained for a comparison."""

from .cifar10 import Cifar10
from .cifar10_vit import Cifar10Vit
from .cora import Cora
from .shakespeare import Shakespeare
from .sst2 import Sst2
from .task import Task, Trial, learning_rate

TASKS: dict[str, type[Task]] = {task.name: task for task in (Cifar10, Cifar10Vit, Shakespeare, Sst2, Cora)}

__all__ = ["TASKS", "Task", "Trial", "learning_rate"]
