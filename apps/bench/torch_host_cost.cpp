// What one saved tensor costs on the host in a C++ program, pack and unpack together: torch_host_cost.py without
// Python. Variants run in turn; each figure is the median of the differences to a step without a session.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <actzip/torch.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <optional>
#include <vector>

namespace {

constexpr int kLayers = 12;
constexpr int kSteps = 400;
constexpr std::int64_t kWidth = 32;

at::Tensor parameter(at::IntArrayRef sizes) { return (at::randn(sizes) / 6).requires_grad_(); }

/// Linear, ReLU and layer norm, as in the Python script.
struct Model {
  struct Layer {
    at::Tensor weight = parameter({kWidth, kWidth});
    at::Tensor bias = parameter({kWidth});
    at::Tensor norm_weight = parameter({kWidth});
    at::Tensor norm_bias = parameter({kWidth});
  };
  std::array<Layer, kLayers> layers;

  [[nodiscard]] at::Tensor forward(at::Tensor x) const {
    for (const Layer& layer : layers) {
      x = at::layer_norm(at::relu(at::linear(x, layer.weight, layer.bias)), {kWidth}, layer.norm_weight,
                         layer.norm_bias);
    }
    return x.sum();
  }

  [[nodiscard]] std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> all;
    for (const Layer& l : layers) all.insert(all.end(), {l.weight, l.bias, l.norm_weight, l.norm_bias});
    return all;
  }
};

struct Seconds {
  double forward;
  double backward;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Seconds step(const Model& model, const at::Tensor& x, actzip::torch::Session* session) {
  const double start = now();
  at::Tensor loss;
  if (session != nullptr) {
    const auto scope = session->scope();
    loss = model.forward(x);
  } else {
    loss = model.forward(x);
  }
  const double middle = now();
  loss.backward();
  const double end = now();
  for (at::Tensor parameter : model.parameters()) parameter.mutable_grad().reset();
  return {middle - start, end - middle};
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

struct Variant {
  const char* name;
  std::optional<actzip::torch::Session> session;
  std::vector<double> forward;
  std::vector<double> backward;
};

}  // namespace

int main() {
  at::set_num_threads(1);
  at::manual_seed(0);
  const Model model;
  const at::Tensor x = at::randn({8, kWidth});
  std::array<Variant, 4> variants{
      {{"no session", std::nullopt, {}, {}}, {"as is", {}, {}, {}}, {"exact", {}, {}, {}}, {"default", {}, {}, {}}}};
  variants[1].session.emplace(actzip::SessionOptions{.preset = "exact", .min_elems = std::int64_t{1} << 30});
  variants[2].session.emplace(actzip::SessionOptions{.preset = "exact", .min_elems = 0});
  variants[3].session.emplace(actzip::SessionOptions{.min_elems = 0});
  for (Variant& variant : variants) {
    if (variant.session) variant.session->register_parameters(model.parameters());
  }
  for (int i = 0; i < kSteps; ++i) {
    for (Variant& variant : variants) {
      const Seconds plain = step(model, x, nullptr);  // beside each, so that drift cancels
      const Seconds seconds = step(model, x, variant.session ? &*variant.session : nullptr);
      variant.forward.push_back(seconds.forward - plain.forward);
      variant.backward.push_back(seconds.backward - plain.backward);
    }
  }
  const auto saves = static_cast<double>(variants[1].session->report().sites.size());
  std::printf("%.0f saved tensors a step; us per saved tensor, C++\n%-12s %7s %7s %7s\n", saves, "", "pack", "unpack",
              "sum");
  for (const Variant& variant : variants) {
    const double pack = median(variant.forward) * 1e6 / saves;
    const double unpack = median(variant.backward) * 1e6 / saves;
    std::printf("%-12s %7.2f %7.2f %7.2f\n", variant.name, pack, unpack, pack + unpack);
  }
}
