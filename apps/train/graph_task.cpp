// The task of classifying the nodes of a graph; every step uses all nodes.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "data/file.hpp"
#include "data/graph.hpp"
#include "models/graph.hpp"
#include "task.hpp"

namespace actzip::train {

namespace {

std::vector<std::int64_t> nodes_of(const data::Graph& graph, data::NodeSplit split) {
  std::vector<std::int64_t> nodes;
  for (std::int64_t node = 0; node < graph.nodes; ++node) {
    if (graph.split[static_cast<std::size_t>(node)] == split) nodes.push_back(node);
  }
  return nodes;
}

class GraphTask final : public Task {
 public:
  GraphTask(const Options& options, c10::Device device) : options_(options), graph_(data::load_graph(options.data)) {
    data::share_features(graph_);
    features_ = at::from_blob(graph_.x.data(), {graph_.nodes, graph_.features}, at::kFloat).clone().to(device);
    adjacency_ = models::normalised_adjacency(graph_.from, graph_.to, graph_.nodes, options.model).to(device);
    const at::Tensor labels = to_device(graph_.labels, device);
    train_ = to_device(nodes_of(graph_, data::NodeSplit::train), device);
    validation_ = to_device(nodes_of(graph_, data::NodeSplit::validation), device);
    test_ = to_device(nodes_of(graph_, data::NodeSplit::test), device);
    train_labels_ = labels.index({train_});
    validation_labels_ = labels.index({validation_});
    test_labels_ = labels.index({test_});
  }

  [[nodiscard]] std::string data_identity() const override {
    const std::uint32_t edges = data::checksum(graph_.to, data::checksum(graph_.from));
    return fmt::format("{} nodes and {} edges, {:08x}", graph_.nodes, graph_.from.size(),
                       data::checksum(graph_.labels, data::checksum(graph_.x, edges)));
  }
  [[nodiscard]] models::ModelOptions model_options() const override {
    models::ModelOptions model = common_model_options(options_);
    model.classes = std::max(options_.classes, graph_.classes);
    model.features = graph_.features;
    model.input_dropout = options_.input_dropout;
    model.norm = options_.norm;
    return model;
  }
  [[nodiscard]] std::int64_t batches() const override { return 1; }
  [[nodiscard]] std::string_view unit() const override { return "nodes"; }
  [[nodiscard]] Metric metric() const override { return {"accuracy", true, 2}; }

  void begin_epoch(std::int64_t /*epoch*/, std::int64_t /*first_batch*/) override {}
  Batch next() override { return {features_, train_labels_, adjacency_, graph_.nodes}; }

  [[nodiscard]] at::Tensor loss(models::Model& model, const Batch& batch) const override {
    return cross_entropy(model.forward(batch.input, batch.extra).index({train_}), batch.target,
                         options_.label_smoothing);
  }

  [[nodiscard]] Evaluation evaluate(models::Model& model) override {
    const at::Tensor logits = model.forward(features_, adjacency_);
    const auto accuracy = [&](const at::Tensor& nodes, const at::Tensor& labels) {
      return 100.0 * static_cast<double>(count_correct(logits.index({nodes}), labels)) /
             static_cast<double>(nodes.size(0));
    };
    return {accuracy(test_, test_labels_), accuracy(validation_, validation_labels_)};
  }

 private:
  Options options_;
  data::Graph graph_;
  at::Tensor features_;
  at::Tensor adjacency_;
  at::Tensor train_;
  at::Tensor validation_;
  at::Tensor test_;
  at::Tensor train_labels_;
  at::Tensor validation_labels_;
  at::Tensor test_labels_;
};

}  // namespace

std::unique_ptr<Task> make_graph_task(const Options& options, c10::Device device) {
  return std::make_unique<GraphTask>(options, device);
}

}  // namespace actzip::train
