#include "model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "actzip/error.hpp"
#include "families.hpp"

namespace actzip::models {

namespace {

using Maker = std::shared_ptr<Model> (*)(const ModelOptions&);

struct Entry {
  ModelInfo info;
  Maker make;
  ModelOptions defaults;  ///< the values that replace 0 and -1
};

Entry entry(std::string_view name, Kind kind, std::string_view description, Maker make, const ModelOptions& defaults,
            ModelOptions published, std::int64_t parameters) {
  published.name = name;
  return {{name, kind, description, std::move(published), parameters}, make, defaults};
}

const std::vector<Entry>& entries() {
  const ModelOptions imagenet{.classes = 1000, .image_size = 224};
  const ModelOptions cifar{.classes = 10, .image_size = 32};
  const ModelOptions cora{.classes = 7, .features = 1433};
  const ModelOptions arxiv{.classes = 40, .features = 128, .hidden = 256, .layers = 3, .norm = true};
  const auto width = [](std::int64_t hidden, std::int64_t heads) {
    return ModelOptions{.hidden = hidden, .layers = 12, .heads = heads, .dropout = 0};
  };
  const ModelOptions none;
  // clang-format off
  static const std::vector<Entry> kEntries = {
      entry("resnet18", Kind::image, "ResNet of 18 layers", make_resnet, none, imagenet, 11'689'512),
      entry("resnet34", Kind::image, "ResNet of 34 layers", make_resnet, none, imagenet, 21'797'672),
      entry("resnet50", Kind::image, "ResNet of 50 layers, bottlenecks", make_resnet, none, imagenet, 25'557'032),
      entry("resnet101", Kind::image, "ResNet of 101 layers, bottlenecks", make_resnet, none, imagenet, 44'549'160),
      entry("resnet152", Kind::image, "ResNet of 152 layers, bottlenecks", make_resnet, none, imagenet, 60'192'808),
      entry("wide-resnet50-2", Kind::image, "ResNet-50, bottlenecks twice as wide",
            make_resnet, none, imagenet, 68'883'240),
      entry("wide-resnet101-2", Kind::image, "ResNet-101, bottlenecks twice as wide",
            make_resnet, none, imagenet, 126'886'696),
      entry("preact-resnet56", Kind::image, "pre-activation ResNet of 56 layers for small images",
            make_preact_resnet, none, cifar, 855'578),
      entry("preact-resnet164", Kind::image, "pre-activation ResNet of 164 layers for small images, bottlenecks",
            make_preact_resnet, none, cifar, 1'703'258),
      entry("division-resnet164", Kind::image, "the pre-activation ResNet of 164 layers that DIVISION trains",
            make_preact_resnet, none, cifar, 1'711'322),
      entry("densenet121", Kind::image, "DenseNet of 121 layers, growth 32", make_densenet, none, imagenet, 7'978'856),
      entry("densenet161", Kind::image, "DenseNet of 161 layers, growth 48", make_densenet, none, imagenet, 28'681'000),
      entry("densenet201", Kind::image, "DenseNet of 201 layers, growth 32", make_densenet, none, imagenet, 20'013'928),
      entry("vit-tiny", Kind::image, "vision transformer of width 192", make_vit, width(192, 3), imagenet, 5'717'416),
      entry("vit-small", Kind::image, "vision transformer of width 384", make_vit, width(384, 6), imagenet, 22'050'664),
      entry("vit-base", Kind::image, "vision transformer of width 768", make_vit, width(768, 12), imagenet, 86'567'656),
      // GPT-2's 124,439,808 plus a head, for which GPT-2 reuses its embedding.
      entry("gpt", Kind::text, "causal transformer that predicts the next token", make_gpt,
            {.length = 256, .hidden = 384, .layers = 6, .heads = 6, .dropout = 0.2},
            {.vocabulary = 50257, .length = 1024, .hidden = 768, .layers = 12, .heads = 12}, 163'087'441),
      // BERT-base's 109,482,240 without pooler and segments, plus a head.
      entry("encoder", Kind::sentence, "transformer that classifies sentences", make_encoder,
            {.length = 64, .hidden = 256, .layers = 4, .heads = 4, .dropout = 0.1},
            {.classes = 2, .vocabulary = 30522, .length = 512, .hidden = 768, .layers = 12, .heads = 12}, 108'891'650),
      entry("gcn", Kind::graph, "graph convolutions (Kipf and Welling)", make_gcn,
            {.hidden = 16, .layers = 2, .dropout = 0.5}, arxiv, 110'120),
      entry("sage", Kind::graph, "GraphSAGE with means (Hamilton and others)", make_sage,
            {.hidden = 16, .layers = 2, .dropout = 0.5}, arxiv, 218'664),
      entry("gat", Kind::graph, "graph attention (Velickovic and others)", make_gat,
            {.hidden = 64, .layers = 2, .heads = 8, .dropout = 0.6}, cora, 92'373),
  };
  // clang-format on
  return kEntries;
}

const Entry& find(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Entry& each : entries()) {
    if (each.info.name == name) return each;
    names.push_back(each.info.name);
  }
  throw Error(ErrorCode::invalid_model, fmt::format("model '{}' (allowed: {})", name, fmt::join(names, ", ")));
}

ModelOptions with_defaults(ModelOptions options, const ModelOptions& defaults) {
  for (const auto size : {&ModelOptions::length, &ModelOptions::hidden, &ModelOptions::layers, &ModelOptions::heads}) {
    if (options.*size == 0) options.*size = defaults.*size;
  }
  if (options.dropout == -1) options.dropout = defaults.dropout;
  return options;
}

[[noreturn]] void refuse(const ModelOptions& options, std::string_view what, auto given, std::string_view allowed) {
  throw Error(ErrorCode::invalid_model,
              fmt::format("model '{}': {} {} (allowed: {})", options.name, what, given, allowed));
}

/// A limit that keeps the product of three sizes within 64 bits.
constexpr std::int64_t kMostSize = std::int64_t{1} << 20;

void check_size(const ModelOptions& options, std::string_view what, std::int64_t given) {
  if (given < 1 || given > kMostSize) refuse(options, what, given, fmt::format("1 to {}", kMostSize));
}

void check_image(const ModelOptions& options) {
  constexpr std::int64_t kSmallest = 16;
  if (options.image_size < kSmallest || options.image_size > kMostSize) {
    refuse(options, "image_size", options.image_size, fmt::format("{} to {}", kSmallest, kMostSize));
  }
  const std::int64_t patch = options.image_size > kSmallImage ? 16 : 4;
  if (options.heads > 0 && options.image_size % patch != 0) {
    refuse(options, "image_size", options.image_size, fmt::format("multiples of the patches' {}", patch));
  }
}

/// Refuses options that the model would ignore: they were meant for another model.
void check_belonging(const ModelOptions& options, const ModelOptions& defaults, Kind kind) {
  constexpr std::string_view kNone = "none, this model has no such size";
  if (options.layers != 0 && defaults.layers == 0) refuse(options, "layers", options.layers, kNone);
  if (options.hidden != 0 && defaults.hidden == 0) refuse(options, "hidden", options.hidden, kNone);
  if (options.heads != 0 && defaults.heads == 0) refuse(options, "heads", options.heads, kNone);
  if (options.dropout > 0 && defaults.dropout == -1) refuse(options, "dropout", options.dropout, "0, or -1");
  if (kind == Kind::graph) return;
  if (options.norm) refuse(options, "norm", options.norm, "false; it is for graphs");
  if (options.input_dropout != 0) refuse(options, "input_dropout", options.input_dropout, "0; it is for graphs");
}

/// Checks options whose defaults have been filled in.
void check(const ModelOptions& options, Kind kind) {
  check_size(options, "classes", options.classes);
  if (kind == Kind::image) check_image(options);
  if (kind == Kind::text || kind == Kind::sentence) {
    check_size(options, "vocabulary", options.vocabulary);
    check_size(options, "length", options.length);
  }
  if (kind == Kind::graph) check_size(options, "features", options.features);
  for (const std::int64_t size : {options.layers, options.hidden, options.heads}) {
    if (size >= 0 && size <= kMostSize) continue;
    refuse(options, "layers, hidden, heads", fmt::format("{}, {}, {}", options.layers, options.hidden, options.heads),
           fmt::format("1 to {}, or 0 for the default", kMostSize));
  }
  if (options.heads > 0 && options.hidden % options.heads != 0) {
    refuse(options, "hidden", options.hidden, fmt::format("multiples of its {} heads", options.heads));
  }
  if (options.dropout != -1 && !(options.dropout >= 0 && options.dropout < 1)) {
    refuse(options, "dropout", options.dropout, "0 to less than 1, or -1 for the default");
  }
  if (!(options.input_dropout >= 0 && options.input_dropout < 1)) {
    refuse(options, "input_dropout", options.input_dropout, "0 to less than 1");
  }
}

}  // namespace

const std::vector<ModelInfo>& models() {
  static const std::vector<ModelInfo> kInfos = [] {
    std::vector<ModelInfo> infos;
    for (const Entry& each : entries()) infos.push_back(each.info);
    return infos;
  }();
  return kInfos;
}

const ModelInfo& model_info(std::string_view name) { return find(name).info; }

std::shared_ptr<Model> make_model(const ModelOptions& options) {
  const Entry& found = find(options.name);
  check_belonging(options, found.defaults, found.info.kind);
  const ModelOptions whole = with_defaults(options, found.defaults);
  check(whole, found.info.kind);
  return found.make(whole);
}

std::string_view to_string(Kind kind) noexcept {
  switch (kind) {
    case Kind::image: return "image";
    case Kind::text: return "text";
    case Kind::sentence: return "sentence";
    case Kind::graph: return "graph";
  }
  return "unknown";
}

std::int64_t parameter_count(const ::torch::nn::Module& model) {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model.parameters()) count += parameter.numel();
  return count;
}

}  // namespace actzip::models
