// Networks for LibTorch programs: made by name, trained plainly or with compressed activations.
//
//   auto model = actzip::models::make_model({.name = "resnet18", .classes = 10, .image_size = 32});
//   auto logits = model->forward(images);                   // plain: LibTorch's own layers
//
//   actzip::torch::Session session;
//   { auto scope = session.scope(); loss = ...; }           // compressed: what autograd saves goes to the session
//   actzip::torch::nn::keep_with(*model, session);          // faster: from now on the layers keep by themselves; the
//   scope
//                                                           // then serves what lies between them (attention, graphs)
#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace actzip::models {

class Model : public ::torch::nn::Module {
 public:
  /// Logits: [batch, classes] for images [batch, 3, height, width] and sentences [batch, length],
  /// [batch, length, vocabulary] for texts [batch, length], [nodes, classes] for graphs [nodes, features].
  /// `extra`: of sentences, which words are there (bool, like input; undefined: those that are not 0); of graphs, the
  /// matrix of normalised_adjacency() in graph.hpp.
  virtual at::Tensor forward(const at::Tensor& input, const at::Tensor& extra = {}) = 0;
};

enum class Kind { image, text, sentence, graph };

/// Where 0 stands for a size and -1 for a rate, the model's own default is taken; it is in docs/models.md.
struct ModelOptions {
  std::string name = {};
  std::int64_t classes = 10;
  std::int64_t image_size =
      32;  ///< up to 64: the stem for small images, patches of 4; above: ImageNet's, patches of 16
  std::int64_t vocabulary = 0;
  std::int64_t length = 0;    ///< the most words of a text or sentence
  std::int64_t features = 0;  ///< of a node; graphs must be given it
  std::int64_t hidden = 0;    ///< width of transformers and of the hidden layers of graphs
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  double dropout = -1;
  double input_dropout = 0;  ///< of a node's features
  bool norm = false;         ///< graphs: a batch norm after each hidden layer
};

struct ModelInfo {
  std::string_view name;
  Kind kind;
  std::string_view description;
  ModelOptions published;   ///< the sizes at which the count below was published
  std::int64_t parameters;  ///< at those sizes
};

/// All that make_model() knows.
const std::vector<ModelInfo>& models();

/// Throws actzip::Error for a name that is not among them, which it lists, or a size that is missing or out of range.
const ModelInfo& model_info(std::string_view name);

/// Weights come from torch's generator, drawn in the order of the Python model of the same name (docs/models.md).
std::shared_ptr<Model> make_model(const ModelOptions& options);

std::string_view to_string(Kind kind) noexcept;

std::int64_t parameter_count(const ::torch::nn::Module& model);

}  // namespace actzip::models
