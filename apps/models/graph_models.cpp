// GCN, GraphSAGE and GAT for full-batch training, on matrices from normalised_adjacency().
#include <ATen/ops/elu.h>

#include <vector>

#include "families.hpp"
#include "graph.hpp"
#include "layers.hpp"

namespace actzip::models {

namespace {

namespace nn = ::torch::nn;

/// A stack of graph layers. After each but the last come a batch norm if requested, a ReLU or ELU, and dropout.
class GraphModel : public Model {
 public:
  at::Tensor forward(const at::Tensor& input, const at::Tensor& extra) override {
    at::Tensor x = input_dropout_ ? input_dropout_(input) : input;
    for (std::size_t i = 0; i < depth_; ++i) {
      x = convolve(i, x, extra);
      if (i + 1 == depth_) break;
      if (!norms_.empty()) x = norms_[i](x);
      x = dropouts_[i](relus_.empty() ? at::elu(x) : relus_[i](x));
    }
    return x;
  }

 protected:
  /// Returns the width of the input and of each layer's output.
  static std::vector<std::int64_t> widths(const ModelOptions& options) {
    std::vector<std::int64_t> widths(static_cast<std::size_t>(options.layers) + 1, options.hidden);
    widths.front() = options.features;
    widths.back() = options.classes;
    return widths;
  }

  void add_between(const ModelOptions& options, bool has_relu = true) {
    depth_ = static_cast<std::size_t>(options.layers);
    if (options.input_dropout > 0) {
      input_dropout_ = register_module("input_dropout", Dropout(options.input_dropout));
    }
    for (std::size_t i = 1; i < depth_; ++i) {
      const std::string number = std::to_string(i);
      if (options.norm) norms_.push_back(register_module("norm" + number, BatchNorm1d(options.hidden)));
      if (has_relu) relus_.push_back(register_module("relu" + number, relu()));
      dropouts_.push_back(register_module("dropout" + number, Dropout(options.dropout)));
    }
  }

  virtual at::Tensor convolve(std::size_t layer, const at::Tensor& x, const at::Tensor& graph) = 0;

 private:
  std::size_t depth_ = 0;
  Dropout input_dropout_{nullptr};
  std::vector<BatchNorm1d> norms_;
  std::vector<ReLU> relus_;  ///< empty: ELU
  std::vector<Dropout> dropouts_;
};

/// The network of Kipf and Welling, with the names of apps/bench/tasks/cora.py.
class Gcn : public GraphModel {
 public:
  explicit Gcn(const ModelOptions& options) {
    const auto widths = GraphModel::widths(options);
    for (std::size_t i = 1; i < widths.size(); ++i) {
      const std::string number = std::to_string(i);
      layers_.push_back(register_module("layer" + number, product(widths[i - 1], widths[i])));
      biases_.push_back(register_parameter("bias" + number, ::torch::zeros(widths[i])));
    }
    for (const Linear& layer : layers_) nn::init::xavier_uniform_(layer->weight);
    add_between(options);
  }

 protected:
  at::Tensor convolve(std::size_t layer, const at::Tensor& x, const at::Tensor& graph) override {
    return neighbour_sum(graph, layers_[layer](x)) + biases_[layer];
  }

 private:
  std::vector<Linear> layers_;
  std::vector<at::Tensor> biases_;
};

/// Hamilton's GraphSAGE with means. Applies the weights before the mean: both products then save the same input, once.
class Sage : public GraphModel {
 public:
  explicit Sage(const ModelOptions& options) {
    const auto widths = GraphModel::widths(options);
    for (std::size_t i = 1; i < widths.size(); ++i) {
      const std::string name = "layer" + std::to_string(i);
      neighbours_.push_back(register_module(name + "_neighbours", product(widths[i - 1], widths[i])));
      own_.push_back(register_module(name + "_own", Linear(widths[i - 1], widths[i])));
    }
    add_between(options);
  }

 protected:
  at::Tensor convolve(std::size_t layer, const at::Tensor& x, const at::Tensor& graph) override {
    return neighbour_mean(graph, neighbours_[layer](x)) + own_[layer](x);
  }

 private:
  std::vector<Linear> neighbours_, own_;
};

/// One attention layer of the network of Velickovic and others.
class Attention : public nn::Module {
 public:
  Attention(std::int64_t inputs, std::int64_t heads, std::int64_t width, double dropout) {
    linear_ = register_module("linear", product(inputs, heads * width));
    source_ = register_parameter("source", ::torch::empty({1, heads, width}));
    target_ = register_parameter("target", ::torch::empty({1, heads, width}));
    bias_ = register_parameter("bias", ::torch::zeros(heads * width));
    dropout_ = register_module("dropout", Dropout(dropout));
    for (const at::Tensor& weight : {linear_->weight, source_, target_}) nn::init::xavier_uniform_(weight);
  }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& graph) {
    constexpr double kSlope = 0.2;
    const at::Tensor h = linear_(x).view({-1, source_.size(1), source_.size(2)});
    const at::Tensor weights = attention_weights(graph, (h * source_).sum(2), (h * target_).sum(2), kSlope);
    return weighted_neighbour_sum(graph, dropout_(weights), h).flatten(1) + bias_;
  }

 private:
  Linear linear_{nullptr};
  at::Tensor source_, target_, bias_;
  Dropout dropout_{nullptr};
};

/// The network of Velickovic and others. `hidden` is the total width of all heads; the last layer has one head.
class Gat : public GraphModel {
 public:
  explicit Gat(const ModelOptions& options) {
    const auto widths = GraphModel::widths(options);
    for (std::size_t i = 1; i < widths.size(); ++i) {
      const std::int64_t heads = i + 1 == widths.size() ? 1 : options.heads;
      layers_.push_back(
          register_module("layer" + std::to_string(i),
                          std::make_shared<Attention>(widths[i - 1], heads, widths[i] / heads, options.dropout)));
    }
    add_between(options, /*has_relu=*/false);
  }

 protected:
  at::Tensor convolve(std::size_t layer, const at::Tensor& x, const at::Tensor& graph) override {
    return layers_[layer]->forward(x, graph);
  }

 private:
  std::vector<std::shared_ptr<Attention>> layers_;
};

}  // namespace

std::shared_ptr<Model> make_gcn(const ModelOptions& options) { return std::make_shared<Gcn>(options); }
std::shared_ptr<Model> make_sage(const ModelOptions& options) { return std::make_shared<Sage>(options); }
std::shared_ptr<Model> make_gat(const ModelOptions& options) { return std::make_shared<Gat>(options); }

}  // namespace actzip::models
