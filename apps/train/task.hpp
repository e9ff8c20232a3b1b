// Tasks: a data set cut into batches, a loss, and a metric.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/model.hpp"
#include "options.hpp"

namespace actzip::train {

/// The inputs of one forward pass, on the network's device.
struct Batch {
  at::Tensor input;
  at::Tensor target;
  at::Tensor extra;  ///< see Model::forward()
  std::int64_t examples = 0;
};

/// The result of evaluating a network.
struct Evaluation {
  double value = 0.0;
  /// The metric on validation examples, if the data has separate ones. It then decides which epoch is the best.
  std::optional<double> validation = {};

  [[nodiscard]] double choice() const { return validation.value_or(value); }
};

struct Metric {
  std::string_view name;  ///< "accuracy" in %, "loss" in nats
  bool higher_is_better = true;
  int digits = 2;
};

/// What a run learns. The batches depend on the seed, but not on the device or the number of workers: nothing but
/// dropout draws from torch's generator.
class Task {
 public:
  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  /// A text that identifies the data, wherever it is stored.
  [[nodiscard]] virtual std::string data_identity() const = 0;
  /// The options of the network for this data and the options of the run.
  [[nodiscard]] virtual models::ModelOptions model_options() const = 0;
  /// The number of batches per epoch.
  [[nodiscard]] virtual std::int64_t batches() const = 0;
  /// The unit of the examples that the speed counts: "images".
  [[nodiscard]] virtual std::string_view unit() const = 0;
  [[nodiscard]] virtual Metric metric() const = 0;

  virtual void begin_epoch(std::int64_t epoch, std::int64_t first_batch) = 0;
  /// Returns the epoch's next batch. Requires that there is one.
  virtual Batch next() = 0;
  /// Returns the mean loss over the batch, in f32.
  [[nodiscard]] virtual at::Tensor loss(models::Model& model, const Batch& batch) const = 0;
  /// Computes the metric on data not used for training. Requires the model to be in evaluation mode and gradients to be
  /// off.
  [[nodiscard]] virtual Evaluation evaluate(models::Model& model) = 0;
  /// Names of the records that could not be used.
  [[nodiscard]] virtual std::vector<std::string> skipped() const { return {}; }
};

/// Makes the task for the model's kind. Throws DataError, Error or WrongUsage.
std::unique_ptr<Task> make_task(const Options& options, c10::Device device);

std::unique_ptr<Task> make_image_task(const Options& options, c10::Device device);
std::unique_ptr<Task> make_text_task(const Options& options, c10::Device device);
std::unique_ptr<Task> make_sentence_task(const Options& options, c10::Device device);
std::unique_ptr<Task> make_graph_task(const Options& options, c10::Device device);

/// Returns the model options that all tasks set alike.
models::ModelOptions common_model_options(const Options& options);

/// Copies numbers into a tensor on the device.
at::Tensor to_device(const std::vector<std::int64_t>& numbers, c10::Device device);

/// Returns the mean cross-entropy, computed in f32.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target, double label_smoothing);

/// Returns the number of rows whose largest logit is at the target.
std::int64_t count_correct(const at::Tensor& logits, const at::Tensor& target);

}  // namespace actzip::train
