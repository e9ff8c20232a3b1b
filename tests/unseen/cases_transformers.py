"""Models of transformers, made small from their configurations and never downloaded."""

import pytest
import torch

TOKENS, IMAGE = (8, 32), 32
TEXT = {"vocab_size": 200, "max_position_embeddings": 128, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
GROUPED = {"num_key_value_heads": 2}
PATCHES = {"image_size": IMAGE, "patch_size": 8}


def made(model, config, batch, **options):
    def make():
        transformers = pytest.importorskip("transformers")
        network = getattr(transformers, model)(getattr(transformers, config)(**options))
        inputs = batch()
        return network, lambda: network(**inputs).loss

    return make


def tokens():
    return torch.randint(3, 200, TOKENS)


def continued():
    ids = tokens()
    return {"input_ids": ids, "labels": ids}


def classified():
    mask = torch.ones(TOKENS, dtype=torch.long)
    mask[:4, 20:] = 0
    return {"input_ids": tokens(), "attention_mask": mask, "labels": torch.randint(2, TOKENS[:1])}


def answered():
    ends = torch.randint(TOKENS[1], (2, TOKENS[0]))
    return {"input_ids": tokens(), "start_positions": ends[0], "end_positions": ends[1]}


def told_apart():
    return {"input_ids": tokens(), "labels": torch.randint(2, TOKENS)}


def translated():
    return {"input_ids": tokens(), "labels": tokens()[:, :24].contiguous()}


def images():
    return {"pixel_values": torch.randn(8, 3, IMAGE, IMAGE), "labels": torch.randint(2, (8,))}


def only_images():
    return {"pixel_values": torch.randn(8, 3, IMAGE, IMAGE)}


def pairs():
    return {"input_ids": tokens()[:, :16], "pixel_values": torch.randn(8, 3, IMAGE, IMAGE), "return_loss": True}


def heard():
    return {"input_features": torch.randn(4, 16, 64), "labels": tokens()[:4, :16].contiguous()}


def causal(model, config, **options):
    return made(model, config, continued, **{**SMALL, **TEXT, **options})


def encoder(model, config, batch=classified, **options):
    return made(model, config, batch, **{**SMALL, **TEXT, **options})


def seen(model, config, batch=images, **options):
    return made(model, config, batch, **{**SMALL, **PATCHES, **options})


def stages(model, config, **options):
    """For networks in stages, whose sizes are given by stage."""
    return made(model, config, images, **options)


def wav2vec2_pretraining():
    """Computes its loss, cosine similarities at a low temperature, in forward."""
    transformers = pytest.importorskip("transformers")
    config = transformers.Wav2Vec2Config(
        **SMALL, conv_dim=(32, 32), conv_stride=(5, 4), conv_kernel=(10, 8), num_feat_extract_layers=2,
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, codevector_dim=32, proj_codevector_dim=32,
        num_negatives=8, layerdrop=0.0)
    network, sound = transformers.Wav2Vec2ForPreTraining(config), torch.randn(4, 1600)
    length = int(network._get_feat_extract_output_lengths(1600))
    mask = torch.rand(4, length) < 0.5
    negatives = torch.randint(4 * length, (4, length, 8))
    return network, lambda: network(sound, mask_time_indices=mask, sampled_negative_indices=negatives).loss


def clip_like(model, config, **options):
    parts = {"text_config": {**SMALL, **TEXT}, "vision_config": {**SMALL, **PATCHES}}
    return made(model, config, pairs, **parts, **options)


CASES = {
    "albert": encoder("AlbertForSequenceClassification", "AlbertConfig", embedding_size=32),
    "bart": made("BartForConditionalGeneration", "BartConfig", translated, d_model=64, encoder_layers=2,
                 decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
                 decoder_ffn_dim=128, **TEXT),
    "beit": seen("BeitForImageClassification", "BeitConfig"),
    "bert-mlm": encoder("BertForMaskedLM", "BertConfig", continued),
    "bloom": made("BloomForCausalLM", "BloomConfig", continued, hidden_size=64, n_layer=2, n_head=4, vocab_size=200),
    "clip": clip_like("CLIPModel", "CLIPConfig", projection_dim=32),
    "cohere": causal("CohereForCausalLM", "CohereConfig", **GROUPED),
    "convnext": stages("ConvNextForImageClassification", "ConvNextConfig", hidden_sizes=[32, 32, 64, 64],
                       depths=[1, 1, 1, 1], patch_size=2),
    "deberta-v2": encoder("DebertaV2ForSequenceClassification", "DebertaV2Config"),
    "deit": seen("DeiTForImageClassification", "DeiTConfig"),
    "dinov2": seen("Dinov2ForImageClassification", "Dinov2Config"),
    "distilbert-qa": made("DistilBertForQuestionAnswering", "DistilBertConfig", answered, dim=64, n_layers=2, n_heads=4,
                          hidden_dim=128, vocab_size=200),
    "efficientnet": stages("EfficientNetForImageClassification", "EfficientNetConfig", image_size=64,
                           width_coefficient=0.25, depth_coefficient=0.25, hidden_dim=320),
    "electra": encoder("ElectraForPreTraining", "ElectraConfig", told_apart, embedding_size=64),
    "falcon": causal("FalconForCausalLM", "FalconConfig"),
    "gemma2": causal("Gemma2ForCausalLM", "Gemma2Config", **GROUPED, head_dim=16),
    "gpt-neo": made("GPTNeoForCausalLM", "GPTNeoConfig", continued, hidden_size=64, num_layers=2, num_heads=4,
                    attention_types=[[["global", "local"], 1]], vocab_size=200, max_position_embeddings=64),
    "gpt-neox": causal("GPTNeoXForCausalLM", "GPTNeoXConfig"),
    "gptj": made("GPTJForCausalLM", "GPTJConfig", continued, n_embd=64, n_layer=2, n_head=4, n_positions=64,
                 rotary_dim=8, vocab_size=200, bos_token_id=0, eos_token_id=1),
    "mamba": made("MambaForCausalLM", "MambaConfig", continued, hidden_size=64, num_hidden_layers=2, vocab_size=200,
                  bos_token_id=0, eos_token_id=1, pad_token_id=2),
    "mistral": causal("MistralForCausalLM", "MistralConfig", **GROUPED, sliding_window=16),
    "mixtral": causal("MixtralForCausalLM", "MixtralConfig", **GROUPED, num_local_experts=4, num_experts_per_tok=2),
    "mobilenet-v2": stages("MobileNetV2ForImageClassification", "MobileNetV2Config", image_size=64,
                           depth_multiplier=0.35),
    "mobilevit": stages("MobileViTForImageClassification", "MobileViTConfig", image_size=64,
                        hidden_sizes=[32, 48, 64], neck_hidden_sizes=[16, 16, 24, 32, 48, 64, 80], num_attention_heads=2),
    "mpnet": encoder("MPNetForSequenceClassification", "MPNetConfig"),
    "mt5": made("MT5ForConditionalGeneration", "MT5Config", translated, d_model=64, d_ff=128, d_kv=16, num_layers=2,
                num_heads=4, vocab_size=200, decoder_start_token_id=2, pad_token_id=2),
    "olmo2": causal("Olmo2ForCausalLM", "Olmo2Config", **GROUPED),
    "opt": causal("OPTForCausalLM", "OPTConfig", ffn_dim=128, word_embed_proj_dim=64),
    "phi": causal("PhiForCausalLM", "PhiConfig"),
    "phi3": causal("Phi3ForCausalLM", "Phi3Config", **GROUPED),
    "poolformer": stages("PoolFormerForImageClassification", "PoolFormerConfig", hidden_sizes=[32, 32, 64, 64],
                         depths=[1, 1, 1, 1]),
    "pvt": stages("PvtForImageClassification", "PvtConfig", image_size=IMAGE, hidden_sizes=[32, 32, 64, 64],
                  depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2], mlp_ratios=[2, 2, 2, 2]),
    "qwen2": causal("Qwen2ForCausalLM", "Qwen2Config", **GROUPED),
    "qwen3": causal("Qwen3ForCausalLM", "Qwen3Config", **GROUPED, head_dim=16),
    "regnet": stages("RegNetForImageClassification", "RegNetConfig", embedding_size=16, hidden_sizes=[16, 32, 32, 64],
                     depths=[1, 1, 1, 1], groups_width=8),
    "roberta": encoder("RobertaForSequenceClassification", "RobertaConfig"),
    "siglip": clip_like("SiglipModel", "SiglipConfig"),
    "stablelm": causal("StableLmForCausalLM", "StableLmConfig", **GROUPED),
    "swin": stages("SwinForImageClassification", "SwinConfig", image_size=IMAGE, patch_size=2, embed_dim=32,
                   depths=[1, 1, 2], num_heads=[2, 2, 4], window_size=4),
    "t5": made("T5ForConditionalGeneration", "T5Config", translated, d_model=64, d_ff=128, d_kv=16, num_layers=2,
               num_heads=4, vocab_size=200, decoder_start_token_id=2, pad_token_id=2),
    "vit-mae-384": made("ViTMAEForPreTraining", "ViTMAEConfig", only_images, hidden_size=384, num_hidden_layers=2,
                        num_attention_heads=6, intermediate_size=768, decoder_hidden_size=192,
                        decoder_num_hidden_layers=1, decoder_num_attention_heads=3, decoder_intermediate_size=384,
                        **PATCHES),
    "wav2vec2-pretraining": wav2vec2_pretraining,
    "whisper": made("WhisperForConditionalGeneration", "WhisperConfig", heard, d_model=64, encoder_layers=2,
                    decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
                    decoder_ffn_dim=128, num_mel_bins=16, max_source_positions=32, max_target_positions=64,
                    decoder_start_token_id=2, **{name: TEXT[name] for name in TEXT if name != "max_position_embeddings"}),
    "xlnet": made("XLNetForSequenceClassification", "XLNetConfig", classified, d_model=64, n_layer=2, n_head=4,
                  d_inner=128, vocab_size=200),
}
