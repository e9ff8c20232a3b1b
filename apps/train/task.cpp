#include "task.hpp"

#include <ATen/ATen.h>

namespace actzip::train {

std::unique_ptr<Task> make_task(const Options& options, c10::Device device) {
  switch (models::model_info(options.model).kind) {
    case models::Kind::image: return make_image_task(options, device);
    case models::Kind::text: return make_text_task(options, device);
    case models::Kind::sentence: return make_sentence_task(options, device);
    case models::Kind::graph: return make_graph_task(options, device);
  }
  return nullptr;
}

models::ModelOptions common_model_options(const Options& options) {
  models::ModelOptions model;
  model.name = options.model;
  model.hidden = options.hidden;
  model.layers = options.layers;
  model.heads = options.heads;
  model.dropout = options.dropout;
  return model;
}

at::Tensor to_device(const std::vector<std::int64_t>& numbers, c10::Device device) {
  const auto all = static_cast<std::int64_t>(numbers.size());
  return at::from_blob(const_cast<std::int64_t*>(numbers.data()), {all}, at::kLong).clone().to(device);
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target, double label_smoothing) {
  return at::cross_entropy_loss(logits.to(at::kFloat), target, {}, at::Reduction::Mean, -100, label_smoothing);
}

std::int64_t count_correct(const at::Tensor& logits, const at::Tensor& target) {
  return logits.argmax(1).eq(target).sum().item<std::int64_t>();
}

}  // namespace actzip::train
