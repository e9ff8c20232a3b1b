"""Like GACT's text classification: a BERT of transformers, trained with accelerate."""

import argparse

import no_gpu  # noqa: F401
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, get_scheduler, set_seed

import gact
from gact.controller import Controller
from gact.utils import exp_recorder, get_memory_usage

parser = argparse.ArgumentParser()
parser.add_argument("--gact", action="store_true")
parser.add_argument("--opt_level", default="L1")
parser.add_argument("--ckpt", action="store_true")
parser.add_argument("--layer_num", type=int, default=2)
parser.add_argument("--hidden_size", type=int, default=32)
parser.add_argument("--num_train_epochs", type=int, default=4)
args = parser.parse_args()
set_seed(0)

accelerator = Accelerator(device_placement=False)
config = BertConfig(vocab_size=40, hidden_size=args.hidden_size, num_hidden_layers=args.layer_num, num_attention_heads=2,
                    intermediate_size=2 * args.hidden_size, max_position_embeddings=16, num_labels=2)
model = BertForSequenceClassification(config).cuda()
if args.ckpt:
    model.gradient_checkpointing_enable()
if args.gact:
    gact.set_optimization_level(args.opt_level)
    controller = Controller(model)

labels = torch.arange(96) % 2
words = torch.randint(4, 22, (96, 16)) + 18 * labels[:, None]  # each label has its words
examples = [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": label}
            for row, label in zip(words, labels)]
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(examples, batch_size=16, shuffle=True))
scheduler = get_scheduler("linear", optimizer, num_warmup_steps=2, num_training_steps=args.num_train_epochs * len(loader))
losses = []
if args.gact:
    controller.install_hook()
for epoch in range(args.num_train_epochs):
    model.train()
    for batch in loader:
        outputs = model(**batch)
        before_backward = get_memory_usage()
        optimizer.zero_grad()
        accelerator.backward(outputs.loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(outputs.loss.item())

        def backprop():
            small = {name: value[:8] for name, value in batch.items()}
            loss = model(**small).loss
            optimizer.zero_grad()
            accelerator.backward(loss)

        if args.gact:
            controller.iterate(backprop)
if args.gact:
    controller.uninstall_hook()
exp_recorder.record("algorithm", args.opt_level)
exp_recorder.dump("results.json")
