"""Third-party models train a step unmodified: torch.nn, transformers, torch_geometric. They are small, and nothing is
downloaded."""

import actzip
import pytest
import torch
import torch.nn.functional as F
from steps import check_default, check_exact, cosine, step
from torch import nn

IMAGES, TOKENS = (8, 3, 32, 32), (8, 32)


def torch_transformer():
    model = nn.Transformer(64, 4, 2, 2, 128, batch_first=True)
    source, target = torch.randn(8, 32, 64), torch.randn(8, 24, 64)
    mask, direction = nn.Transformer.generate_square_subsequent_mask(24), torch.linspace(-1, 1, 64)
    return model, lambda: (model(source, target, tgt_mask=mask) * direction).square().mean()


def recurrent(layer):
    def make():
        model, x = layer(64, 64, 2), torch.randn(32, 16, 64)
        return model, lambda: model(x)[0].square().mean()

    return make


def huggingface(model, config, batch, **options):
    def make():
        transformers = pytest.importorskip("transformers")
        made = getattr(transformers, model)(getattr(transformers, config)(**options))
        inputs = batch()
        return made, lambda: made(**inputs).loss

    return make


def padded_batch():
    mask = torch.ones(TOKENS, dtype=torch.long)
    mask[:4, 20:] = 0
    return {"input_ids": torch.randint(200, TOKENS), "attention_mask": mask, "labels": torch.randint(2, TOKENS[:1])}


def text_batch():
    tokens = torch.randint(200, TOKENS)
    return {"input_ids": tokens, "labels": tokens}


def image_batch():
    return {"pixel_values": torch.randn(IMAGES), "labels": torch.randint(2, IMAGES[:1])}


SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
TEXT = {"vocab_size": 200, "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 1}
GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 200, "bos_token_id": 0, "eos_token_id": 1}


def bert(**options):
    return huggingface("BertForSequenceClassification", "BertConfig", padded_batch, **SMALL, **TEXT, **options)


def gpt2(**options):
    return huggingface("GPT2LMHeadModel", "GPT2Config", text_batch, **GPT2, **options)


def llama(**options):
    return huggingface("LlamaForCausalLM", "LlamaConfig", text_batch, **SMALL, **TEXT, num_key_value_heads=2, **options)


def vit(width=64):
    shape = {**SMALL, "hidden_size": width, "intermediate_size": 2 * width, "image_size": 32, "patch_size": 8}
    return huggingface("ViTForImageClassification", "ViTConfig", image_batch, **shape)


def graph(name, **options):
    def make():
        layers = pytest.importorskip("torch_geometric.nn")
        model = getattr(layers, name)(64, 64, 3, 5, **options)
        edges, x, classes = torch.randint(300, (2, 2400)), torch.randn(300, 64), torch.randint(5, (300,))
        return model, lambda: F.cross_entropy(model(x, edges), classes)

    return make


EAGER = {"attn_implementation": "eager"}
# How many times smaller what is kept must be. Recurrent layers and maxima over neighbours are kept exactly.
MODELS = {
    "torch transformer": (torch_transformer, 6),
    "LSTM": (recurrent(nn.LSTM), 12),
    "GRU": (recurrent(nn.GRU), 6),
    "BERT": (bert(), 6),
    "BERT, unfused attention": (bert(**EAGER), 6),
    "GPT-2": (gpt2(), 5),
    "GPT-2, unfused attention": (gpt2(**EAGER), 5),
    "Llama": (llama(), 5),
    "Llama, unfused attention": (llama(**EAGER), 4),
    "ViT": (vit(), 6),
    "ViT, wide rows": (vit(256), 6),
    "GCN": (graph("GCN", norm="batch_norm", dropout=0.1), 7.5),
    "SAGE": (graph("GraphSAGE"), 7),
    "SAGE, maxima": (graph("GraphSAGE", aggr="max"), 1),
    "GAT": (graph("GAT", heads=4), 5),
    "GATv2": (graph("GAT", heads=4, v2=True), 5),
}
IDS = [name.replace(", ", "-").replace(" ", "_") for name in MODELS]


@pytest.mark.parametrize("make", [make for make, _ in MODELS.values()], ids=IDS)
def test_exact_is_bitwise(make):
    check_exact(*make())


@pytest.mark.parametrize(("make", "times_smaller"), MODELS.values(), ids=IDS)
def test_default_is_close_and_explained(make, times_smaller):
    check_default(*make(), times_smaller)


@pytest.mark.parametrize("make", [bert(), gpt2(), llama(), vit(), torch_transformer],
                         ids=["BERT", "GPT-2", "Llama", "ViT", "torch_transformer"])
def test_under_autocast(make):
    model, loss = make()

    def half():
        with torch.autocast("cpu", torch.bfloat16):
            return loss().float()

    check_exact(model, half)
    check_default(model, half, 2.5)


def test_a_recurrent_layer_runs_again_and_its_gradients_are_exact():
    model, loss = recurrent(nn.LSTM)()
    session = actzip.Session(model, rules={"pow.*": "none", "use:linear_*": "none"})
    plain = step(model, loss)
    for _ in range(2):
        actual = step(model, loss, session)
        assert all(torch.equal(plain[name], actual[name]) for name in plain)
    sites = [site for site in session.report().sites if site.op == "mkldnn_rnn_layer"]
    assert [site.kind for site in sites if site.slot == "aux0"] == ["recomputed"] * 2
    assert session.report().bytes_before > 10 * session.report().bytes_after, session.report().text


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"num_layers": 2, "dropout": 0.3}, {"bias": False},
                                     {"batch_first": False}], ids=str)
def test_every_kind_of_lstm_runs_again(options):
    torch.manual_seed(0)
    layer = nn.LSTM(64, 128, **{"batch_first": True, **options})
    x = torch.randn(8, 16, 64, requires_grad=True)
    states = [torch.randn(layer.num_layers * (2 if layer.bidirectional else 1), 16 if not layer.batch_first else 8, 128)
              for _ in range(2)]

    def loss():
        result, (hidden, cell) = layer(x * 1, states)
        return result.square().sum() + hidden.sum() + cell.square().sum()

    plain = step(layer, loss)
    session = actzip.Session(layer, rules={"pow.*": "none", "mul.*": "none"})
    actual = step(layer, loss, session)
    assert all(torch.equal(plain[name], actual[name]) for name in plain)
    assert "recomputed" in {site.kind for site in session.report().sites}, session.report().text


def test_an_lstm_whose_input_a_rule_compresses_keeps_its_workspace():
    model, loss = recurrent(nn.LSTM)()
    session = actzip.Session(model, rules={"use:recurrent_input": "rotated:4"})
    step(model, loss, session)
    reasons = {site.reason for site in session.report().sites if site.op == "mkldnn_rnn_layer" and site.codec == "as is"}
    assert "states and workspace of a recurrent layer are kept exactly" in reasons


def test_huggingface_gradient_checkpointing():
    model, loss = llama()()
    plain = step(model, loss)
    model.gradient_checkpointing_enable()
    model.train()
    actual = step(model, loss, actzip.Session(model, preset="exact", min_elems=0))
    assert all(torch.equal(plain[name], actual[name]) for name in plain)
    assert cosine(plain, step(model, loss, actzip.Session(model))) > 0.9
