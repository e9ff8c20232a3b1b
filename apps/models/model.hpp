// Networks for LibTorch programs. They are made by name and train plainly or with compressed activations.
//
//   auto model = actzip::models::make_model({.name = "resnet18", .classes = 10, .image_size = 32});
//   auto logits = model->forward(images);                   // plain: LibTorch's own layers
//
//   actzip::torch::Session session;
//   { auto scope = session.scope(); loss = ...; }           // compressed: the session encodes what autograd saves
//   actzip::torch::nn::keep_with(*model, session);          // faster: the layers compress their own activations, and
//                                                           // the scope what lies between them (attention, graphs)
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
  /// Returns logits: [batch, classes] for images [batch, 3, height, width] and sentences [batch, length],
  /// [batch, length, vocabulary] for texts [batch, length], [nodes, classes] for graphs [nodes, features].
  /// `extra` is, for sentences, a bool mask of the words present, shaped like `input` (undefined: the words that are
  /// not 0), and for graphs the matrix from normalised_adjacency() in graph.hpp.
  virtual at::Tensor forward(const at::Tensor& input, const at::Tensor& extra = {}) = 0;
};

enum class Kind { image, text, sentence, graph };

/// The options of a model. A size of 0 or a rate of -1 means the model's default, listed in docs/models.md.
struct ModelOptions {
  std::string name = {};
  std::int64_t classes = 10;
  /// Up to 64: the stem for small images, and patches of 4. Above: ImageNet's stem, and patches of 16.
  std::int64_t image_size = 32;
  std::int64_t vocabulary = 0;
  std::int64_t length = 0;    ///< maximum number of words of a text or sentence
  std::int64_t features = 0;  ///< of a node; required for graphs
  std::int64_t hidden = 0;    ///< width of transformers and of hidden layers of graph networks
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  double dropout = -1;
  double input_dropout = 0;  ///< for a node's features
  bool norm = false;         ///< graph networks: a batch norm after each hidden layer
};

struct ModelInfo {
  std::string_view name;
  Kind kind;
  std::string_view description;
  ModelOptions published;   ///< the sizes for which the count below was published
  std::int64_t parameters;  ///< number of parameters at those sizes
};

/// All models that make_model() can make.
const std::vector<ModelInfo>& models();

/// Looks up a model. Throws actzip::Error for an unknown name, with a list of the known ones.
const ModelInfo& model_info(std::string_view name);

/// Makes a model. Draws its weights from torch's generator in the order of the Python model of the same name
/// (docs/models.md). Throws actzip::Error for an unknown name, or for an option that is missing, out of range or not
/// for this model.
std::shared_ptr<Model> make_model(const ModelOptions& options);

std::string_view to_string(Kind kind) noexcept;

std::int64_t parameter_count(const ::torch::nn::Module& model);

}  // namespace actzip::models
