"""Trainer, TRL, PEFT and QLoRA, with a Llama made from its configuration."""

import actzip
import page
import pytest
import small
import torch
from processes import check_in_two, needs_gloo

AcceleratorState = pytest.importorskip("accelerate.state", reason="Trainer needs accelerate").AcceleratorState
transformers = pytest.importorskip("transformers")

STEPS = {"max_steps": 3, "per_device_train_batch_size": 8, "use_cpu": True, "report_to": [], "disable_tqdm": True,
         "logging_strategy": "no"}


def arguments(folder, **options):
    return transformers.TrainingArguments(**{"output_dir": str(folder), "save_strategy": "no", **STEPS, **options})


def trainer_names(package, folder, model=None, **options):
    return {"actzip": package, "model": model or small.llama(), "Trainer": transformers.Trainer,
            "args": arguments(folder, **options), "train_data": small.texts()}


def train_by_page(package, folder, **options):
    names = trainer_names(package, folder, **options)
    page.run("Hugging Face Trainer", names)
    return page.weights(names["model"])


def test_trainer(tmp_path):
    report = page.check(lambda package: train_by_page(package, tmp_path))
    assert report.steps == STEPS["max_steps"]


@pytest.mark.parametrize("options", [{"bf16": True}, {"gradient_accumulation_steps": 2}], ids=["bf16", "accumulation"])
def test_trainer_with(tmp_path, options):
    page.check(lambda package: train_by_page(package, tmp_path, **options), 1.5)


@needs_gloo
def test_trainer_in_two_processes(tmp_path):
    def train(rank, package):
        AcceleratorState._reset_state(True)  # clears the state of tests before the fork
        return train_by_page(package, tmp_path, ddp_backend="gloo")

    check_in_two(train, tmp_path)


def test_trainer_saves(tmp_path):
    """An attachment does not change what is saved of the model."""
    first = trainer_names(page.Compressing(preset="exact"), tmp_path, save_strategy="steps", save_steps=2, max_steps=2)
    page.run("Hugging Face Trainer", first)
    saved = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "checkpoint-2")
    assert page.are_same(page.weights(first["model"]), page.weights(saved))


def test_the_report_is_of_training_after_an_evaluation(tmp_path):
    names = trainer_names(actzip, tmp_path)
    page.run("Hugging Face Trainer", names)
    names["trainer"].evaluate(small.texts())
    assert names["handle"].report().steps == STEPS["max_steps"] and names["handle"].report().sites


def trl_names(package, folder):
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    tokens = {"input_ids": [row["input_ids"].tolist() for row in small.texts()]}
    return {"actzip": package, "model": small.llama(), "SFTTrainer": trl.SFTTrainer, "SFTConfig": trl.SFTConfig,
            "options": {"output_dir": str(folder), "save_strategy": "no", **STEPS, "bf16": False},
            "train_data": datasets.Dataset.from_dict(tokens), "tokenizer": small.tokenizer()}


def test_trl(tmp_path):
    def train(package):
        names = trl_names(package, tmp_path)
        page.run("TRL", names)
        return page.weights(names["model"])

    report = page.check(train, 4)
    assert "silu" in {site.op for site in report.sites}
    assert {site.codec for site in report.sites if site.op.endswith(".ChunkedLogProbFunction")} == {"as is"}


def test_trl_without_what_the_page_sets(tmp_path):
    """TRL's default: blocks are computed again, so that nothing in them is kept."""
    names = trl_names(actzip, tmp_path)
    handle = actzip.attach(names["model"])
    names["SFTTrainer"](model=names["model"], args=names["SFTConfig"](**names["options"]),
                        train_dataset=names["train_data"], processing_class=names["tokenizer"]).train()
    codecs = {site.site: site.codec for site in handle.report().sites}
    assert not [site for site in codecs if "silu" in site]
    assert codecs["model: checkpoint.input"] == codecs["model: checkpoint.input #1"] == "as is"
    assert [codecs[site] for site in codecs if site.endswith(".ChunkedLogProbFunction.argument0")] == ["as is"]


def adapted_names(package, model):
    peft = pytest.importorskip("peft")
    return {"actzip": package, "model": model, "get_peft_model": peft.get_peft_model, "LoraConfig": peft.LoraConfig,
            "prepare_model_for_kbit_training": peft.prepare_model_for_kbit_training}


def train_attached(names, folder):
    transformers.Trainer(model=names["model"], args=arguments(folder), train_dataset=small.texts()).train()
    assert any(parameter.requires_grad for parameter in names["model"].parameters())
    return {name: value for name, value in page.weights(names["model"]).items() if "lora" in name}


def test_peft(tmp_path):
    def train(package):
        names = adapted_names(package, small.llama())
        page.run("PEFT", names)
        return train_attached(names, tmp_path)

    page.check(train, 3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="bitsandbytes would load the model onto the GPU")
def test_qlora(tmp_path):
    """bitsandbytes runs on the CPU slowly, but fast enough for a network this small."""
    pytest.importorskip("bitsandbytes")
    small.llama().save_pretrained(tmp_path / "model")

    def train(package):
        names = adapted_names(package, None)
        names |= {"AutoModelForCausalLM": transformers.AutoModelForCausalLM, "name": str(tmp_path / "model"),
                  "BitsAndBytesConfig": transformers.BitsAndBytesConfig}
        torch.manual_seed(0)
        page.run("QLoRA", names)
        return train_attached(names, tmp_path)

    page.check(train, 3)
