// What is learned: a data set cut into batches, a loss, and what is measured in the end.
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

/// What the network is given for one forward, on its device.
struct Batch {
  at::Tensor input;
  at::Tensor target;
  at::Tensor extra;  ///< as Model::forward() takes it
  std::int64_t examples = 0;
};

/// The metric of a network as it is.
struct Evaluation {
  double value = 0.0;
  /// On examples that are set apart to choose by, if the data has such: the best epoch is then the best of these.
  std::optional<double> validation = {};

  [[nodiscard]] double choice() const { return validation.value_or(value); }
};

struct Metric {
  std::string_view name;  ///< "accuracy" in %, "loss" in nats
  bool higher_is_better = true;
  int digits = 2;
};

/// The batches of a seed are the same whatever the device and the number of workers; nothing is drawn from torch's
/// generator but dropout.
class Task {
 public:
  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  /// Tells this data from other data, wherever it lies.
  [[nodiscard]] virtual std::string data_identity() const = 0;
  /// The network for this data, by the options of the run.
  [[nodiscard]] virtual models::ModelOptions model_options() const = 0;
  /// Of one epoch.
  [[nodiscard]] virtual std::int64_t batches() const = 0;
  /// What is counted for the speed: "images".
  [[nodiscard]] virtual std::string_view unit() const = 0;
  [[nodiscard]] virtual Metric metric() const = 0;

  virtual void begin_epoch(std::int64_t epoch, std::int64_t first_batch) = 0;
  /// The next of the epoch. Requires that there is one.
  virtual Batch next() = 0;
  /// The mean over the batch, in f32.
  [[nodiscard]] virtual at::Tensor loss(models::Model& model, const Batch& batch) const = 0;
  /// The metric on what was not trained with. The model is in evaluation mode, and no graph is made.
  [[nodiscard]] virtual Evaluation evaluate(models::Model& model) = 0;
  /// Records that could not be used, by name.
  [[nodiscard]] virtual std::vector<std::string> skipped() const { return {}; }
};

/// The task of the kind that the model is for. Throws DataError, Error or WrongUsage.
std::unique_ptr<Task> make_task(const Options& options, c10::Device device);

std::unique_ptr<Task> make_image_task(const Options& options, c10::Device device);
std::unique_ptr<Task> make_text_task(const Options& options, c10::Device device);
std::unique_ptr<Task> make_sentence_task(const Options& options, c10::Device device);
std::unique_ptr<Task> make_graph_task(const Options& options, c10::Device device);

/// What all tasks have of a model's options.
models::ModelOptions common_model_options(const Options& options);

/// A tensor of these numbers, on the device.
at::Tensor to_device(const std::vector<std::int64_t>& numbers, c10::Device device);

/// Cross-entropy in f32.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target, double label_smoothing);

/// How many of the logits' rows are highest where the target says.
std::int64_t count_correct(const at::Tensor& logits, const at::Tensor& target);

}  // namespace actzip::train
