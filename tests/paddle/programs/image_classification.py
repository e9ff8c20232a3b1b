"""A program like ActNN-PaddlePaddle's image classification. It knows nothing of actzip."""

import argparse

import actnn
import numpy
import paddle
from actnn import QScheme, config
from actnn.utils import exp_recorder, get_memory_usage

parser = argparse.ArgumentParser()
parser.add_argument("--actnn-level", default="L3")
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--output", required=True)
options = parser.parse_args()

actnn.set_optimization_level(options.actnn_level)
paddle.seed(0)
random = numpy.random.default_rng(0)
dataset = paddle.io.TensorDataset([paddle.to_tensor(random.normal(size=[48, 3, 32, 32]).astype("float32")),
                                   paddle.to_tensor(random.integers(10, size=[48]))])
loader = actnn.DataLoader(dataset, batch_size=16, shuffle=True, num_workers=0)
QScheme.num_samples = len(dataset)

model = actnn.QModule(paddle.vision.models.resnet18(num_classes=10))
print(model)
optimizer = paddle.optimizer.Momentum(0.01, 0.9, parameters=model.parameters(), weight_decay=5e-4)
model.train()
losses = []
for indices, (images, target) in loader:
    QScheme.batch = indices
    init = get_memory_usage()
    loss = paddle.nn.functional.cross_entropy(model(images), target)
    activation = get_memory_usage() - init
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    losses.append(loss.item())
model.eval()
assert not config.training
with paddle.no_grad():
    model(images)
exp_recorder.record("level", options.actnn_level)
exp_recorder.record("losses", losses)
exp_recorder.record("activation", activation)
exp_recorder.dump(options.output)
