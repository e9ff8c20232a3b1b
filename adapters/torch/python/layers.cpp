// actzip._C: the layers. Takes arguments as Python's modules hold them; does no arithmetic.
#include "layers.hpp"

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actzip/torch_layers.hpp"

namespace py = pybind11;

namespace actzip::torch {

namespace {

using layers::Result;
using Numbers = std::vector<std::int64_t>;
using OptionalTensor = std::optional<at::Tensor>;

at::Tensor or_undefined(const OptionalTensor& tensor) { return tensor.value_or(at::Tensor()); }

/// Binds a function that runs without the GIL and raises torch's kinds of exceptions.
template <class Function>
void def(py::module_& module, const char* name, Function function) {
  module.def(name, ::torch::wrap_pybind_function_no_gil(std::move(function)));
}

void bind_products(py::module_& module) {
  def(module, "convolution",
      [](const Layer& layer, const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
         const Numbers& stride, const Numbers& padding, const Numbers& dilation, bool transposed,
         const Numbers& output_padding, std::int64_t groups) -> Result {
        return layers::convolution(layer, input, weight, or_undefined(bias),
                                   {stride, padding, dilation, output_padding, transposed, groups});
      });
  def(module, "linear",
      [](const Layer& layer, const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias) -> Result {
        return layers::linear(layer, input, weight, or_undefined(bias));
      });
  def(module, "embedding",
      [](const Layer& layer, const at::Tensor& weight, const at::Tensor& indices, std::int64_t padding_idx,
         bool scale_grad_by_freq, bool sparse) -> Result {
        return layers::embedding(layer, weight, indices, padding_idx, scale_grad_by_freq, sparse);
      });
}

void bind_norms(py::module_& module) {
  def(module, "batch_norm",
      [](const Layer& layer, const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
         const OptionalTensor& running_mean, const OptionalTensor& running_var, double momentum, bool training,
         double eps) -> Result {
        return layers::batch_norm(layer, input, {or_undefined(weight), or_undefined(bias)},
                                  {or_undefined(running_mean), or_undefined(running_var), momentum}, training, eps);
      });
  def(module, "sync_batch_norm",
      [](const Layer& layer, const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
         const OptionalTensor& running_mean, const OptionalTensor& running_var, double momentum, double eps,
         const layers::Gather& gather) -> Result {
        return layers::sync_batch_norm(layer, input, {or_undefined(weight), or_undefined(bias)},
                                       {or_undefined(running_mean), or_undefined(running_var), momentum}, eps, gather);
      });
  def(module, "layer_norm",
      [](const Layer& layer, const at::Tensor& input, const Numbers& shape, const OptionalTensor& weight,
         const OptionalTensor& bias, double eps) -> Result {
        return layers::layer_norm(layer, input, shape, {or_undefined(weight), or_undefined(bias)}, eps);
      });
  def(module, "group_norm",
      [](const Layer& layer, const at::Tensor& input, std::int64_t groups, const OptionalTensor& weight,
         const OptionalTensor& bias, double eps) -> Result {
        return layers::group_norm(layer, input, groups, {or_undefined(weight), or_undefined(bias)}, eps);
      });
  def(module, "rms_norm",
      [](const Layer& layer, const at::Tensor& input, const Numbers& shape, const OptionalTensor& weight,
         std::optional<double> eps) -> Result {
        return layers::rms_norm(layer, input, shape, or_undefined(weight), eps);
      });
}

void bind_activations(py::module_& module) {
  def(module, "relu", [](const Layer& layer, const at::Tensor& input, bool inplace) -> Result {
    return layers::relu(layer, input, inplace);
  });
  def(module, "leaky_relu", [](const Layer& layer, const at::Tensor& input, double slope, bool inplace) -> Result {
    return layers::leaky_relu(layer, input, slope, inplace);
  });
  def(module, "gelu", [](const Layer& layer, const at::Tensor& input, const std::string& approximate) -> Result {
    return layers::gelu(layer, input, approximate);
  });
  def(module, "silu", [](const Layer& layer, const at::Tensor& input, bool inplace) -> Result {
    return layers::silu(layer, input, inplace);
  });
  def(module, "dropout", [](const Layer& layer, const at::Tensor& input, double p, bool inplace) -> Result {
    return layers::dropout(layer, input, p, inplace);
  });
}

void bind_pooling(py::module_& module) {
  def(module, "max_pool",
      [](const Layer& layer, const at::Tensor& input, const Numbers& kernel, const Numbers& stride,
         const Numbers& padding, const Numbers& dilation, bool ceil_mode) -> Result {
        return layers::max_pool(
            layer, input,
            {.kernel = kernel, .stride = stride, .padding = padding, .dilation = dilation, .ceil_mode = ceil_mode});
      });
  def(module, "avg_pool",
      [](const Layer& layer, const at::Tensor& input, const Numbers& kernel, const Numbers& stride,
         const Numbers& padding, bool ceil_mode, bool count_include_pad,
         std::optional<std::int64_t> divisor_override) -> Result {
        return layers::avg_pool(layer, input,
                                {.kernel = kernel,
                                 .stride = stride,
                                 .padding = padding,
                                 .dilation = Numbers(kernel.size(), 1),
                                 .ceil_mode = ceil_mode,
                                 .count_include_pad = count_include_pad,
                                 .divisor_override = divisor_override});
      });
}

}  // namespace

void bind_layers(py::module_& module) {
  py::class_<Layer>(module, "Layer")
      .def(py::init([](std::string name, const Session* session, bool derive, std::int64_t pipeline_threshold) {
             const LayerOptions options{derive, pipeline_threshold};
             return session != nullptr ? Layer(std::move(name), *session, options) : Layer(std::move(name), options);
           }),
           py::arg("name"), py::arg("session").none(true), py::kw_only(), py::arg("derive"),
           py::arg("pipeline_threshold"))
      .def_property_readonly("name", &Layer::name);
  module.def("begin_step", &begin_step);
  module.def("end_step", &end_step);
  module.def("default_session", &default_session, py::return_value_policy::reference);
  py::module_ operators = module.def_submodule("layers", "Each gives None where torch's own operator is to be called.");
  bind_products(operators);
  bind_norms(operators);
  bind_activations(operators);
  bind_pooling(operators);
}

}  // namespace actzip::torch
