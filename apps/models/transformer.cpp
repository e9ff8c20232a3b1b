// A GPT, a sentence encoder and a vision transformer, all made of the same block. The names and order of their
// parameters are those of the networks in apps/bench/tasks.
#include <ATen/ops/cat.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <vector>

#include "families.hpp"
#include "layers.hpp"

namespace actzip::models {

namespace {

namespace nn = ::torch::nn;

LayerNorm layer_norm(std::int64_t width) { return LayerNorm(nn::LayerNormOptions({width})); }

/// Attention and a feed-forward network, each with a norm before it and a residual connection around it.
class TransformerBlock : public nn::Module {
 public:
  TransformerBlock(const ModelOptions& options, bool causal) : heads_(options.heads), causal_(causal) {
    const std::int64_t width = options.hidden;
    norm1_ = register_module("norm1", layer_norm(width));
    qkv_ = register_module("qkv", Linear(width, 3 * width));
    project_ = register_module("project", Linear(width, width));
    norm2_ = register_module("norm2", layer_norm(width));
    feed_forward_ =
        register_module("feed_forward", nn::Sequential(Linear(width, 4 * width), GELU(), Linear(4 * width, width)));
    dropout1_ = register_module("dropout1", Dropout(options.dropout));
    dropout2_ = register_module("dropout2", Dropout(options.dropout));
  }

  /// `mask` is true for the positions that may be attended to and broadcasts to [batch, heads, length, length];
  /// undefined: all positions.
  at::Tensor forward(const at::Tensor& input, const at::Tensor& mask) {
    const at::Tensor x = input + dropout1_(project_(attend(norm1_(input), mask)));
    return x + dropout2_(feed_forward_->forward(norm2_(x)));
  }

 private:
  at::Tensor attend(const at::Tensor& x, const at::Tensor& mask) {
    const at::Tensor all = qkv_(x).unflatten(2, {3, heads_, -1}).permute({2, 0, 3, 1, 4});
    const auto allowed = mask.defined() ? std::optional(mask) : std::nullopt;
    return at::scaled_dot_product_attention(all[0], all[1], all[2], allowed, /*dropout_p=*/0.0, causal_)
        .transpose(1, 2)
        .flatten(2);
  }

  std::int64_t heads_;
  bool causal_;
  LayerNorm norm1_{nullptr}, norm2_{nullptr};
  Linear qkv_{nullptr}, project_{nullptr};
  nn::Sequential feed_forward_;
  Dropout dropout1_{nullptr}, dropout2_{nullptr};
};

/// The parts that all three networks share: positions, blocks, a norm and a head.
class Transformer : public Model {
 protected:
  /// Makes the parts in the same order as the Python models. `tokens` is the number of positions.
  void add_body(const ModelOptions& options, std::int64_t tokens, std::int64_t outputs, bool causal) {
    positions_ = register_parameter("positions", 0.02 * ::torch::randn({tokens, options.hidden}));
    dropout_ = register_module("dropout", Dropout(options.dropout));
    nn::ModuleList list;
    for (std::int64_t i = 0; i < options.layers; ++i) {
      blocks_.push_back(std::make_shared<TransformerBlock>(options, causal));
      list->push_back(blocks_.back());
    }
    register_module("blocks", list);
    norm_ = register_module("norm", layer_norm(options.hidden));
    head_ = register_module("head", Linear(options.hidden, outputs));
    initialise();
  }

  at::Tensor run_blocks(const at::Tensor& embedded, const at::Tensor& mask = {}) {
    at::Tensor x = dropout_(embedded + positions_.slice(0, 0, embedded.size(1)));
    for (const auto& block : blocks_) x = block->forward(x, mask);
    return norm_(x);
  }

  Dropout dropout_{nullptr};
  Linear head_{nullptr};

 private:
  /// Initialises as GPT-2 does: small normal weights and zero biases.
  void initialise() {
    constexpr double kDeviation = 0.02;
    for (const auto& module : modules(/*include_self=*/false)) {
      if (auto* embedding = module->as<nn::EmbeddingImpl>()) nn::init::normal_(embedding->weight, 0, kDeviation);
      if (auto* linear = module->as<nn::LinearImpl>()) {
        nn::init::normal_(linear->weight, 0, kDeviation);
        nn::init::zeros_(linear->bias);
      }
    }
  }

  at::Tensor positions_;
  std::vector<std::shared_ptr<TransformerBlock>> blocks_;
  LayerNorm norm_{nullptr};
};

class Gpt : public Transformer {
 public:
  explicit Gpt(const ModelOptions& options) {
    embedding_ = register_module("embedding", Embedding(options.vocabulary, options.hidden));
    add_body(options, options.length, options.vocabulary, /*causal=*/true);
  }

  at::Tensor forward(const at::Tensor& input, const at::Tensor& /*extra*/) override {
    return head_(run_blocks(embedding_(input)));
  }

 private:
  Embedding embedding_{nullptr};
};

class Encoder : public Transformer {
 public:
  explicit Encoder(const ModelOptions& options) {
    embedding_ = register_module("embedding", Embedding(options.vocabulary, options.hidden));
    pooled_dropout_ = Dropout(options.dropout);
    add_body(options, options.length, options.classes, /*causal=*/false);
    register_module("pooled_dropout", pooled_dropout_);
  }

  /// The head gets the mean over the words present. Uses masked_fill rather than a product, because it saves only one
  /// bit per word for backward.
  at::Tensor forward(const at::Tensor& input, const at::Tensor& extra) override {
    const at::Tensor mask = extra.defined() ? extra : input != 0;
    const at::Tensor x = run_blocks(embedding_(input), mask.unsqueeze(1).unsqueeze(1));
    const at::Tensor sum = x.masked_fill(mask.logical_not().unsqueeze(2), 0).sum(1);
    return head_(pooled_dropout_(sum / mask.sum(1, /*keepdim=*/true)));
  }

 private:
  Embedding embedding_{nullptr};
  Dropout pooled_dropout_{nullptr};
};

class Vit : public Transformer {
 public:
  explicit Vit(const ModelOptions& options) {
    const std::int64_t patch = options.image_size > kSmallImage ? 16 : 4;
    const std::int64_t side = options.image_size / patch;
    patches_ = register_module("patches", Conv2d(nn::Conv2dOptions(3, options.hidden, patch).stride(patch)));
    class_token_ = register_parameter("class_token", ::torch::zeros({1, 1, options.hidden}));
    add_body(options, side * side + 1, options.classes, /*causal=*/false);
  }

  at::Tensor forward(const at::Tensor& input, const at::Tensor& /*extra*/) override {
    const at::Tensor x = patches_(input).flatten(2).transpose(1, 2);
    return head_(run_blocks(at::cat({class_token_.expand({x.size(0), -1, -1}), x}, 1)).select(1, 0));
  }

 private:
  Conv2d patches_{nullptr};
  at::Tensor class_token_;
};

}  // namespace

std::shared_ptr<Model> make_gpt(const ModelOptions& options) { return std::make_shared<Gpt>(options); }
std::shared_ptr<Model> make_encoder(const ModelOptions& options) { return std::make_shared<Encoder>(options); }
std::shared_ptr<Model> make_vit(const ModelOptions& options) { return std::make_shared<Vit>(options); }

}  // namespace actzip::models
