// Runs the C++ networks for test_cpp_models.py.
//
//   model_tool make WEIGHTS SEED name=NAME [SIZE=VALUE ...]           writes a seed's initial weights
//   model_tool run WEIGHTS INPUT OUTPUT name=NAME [SIZE=VALUE ...]    reads "input" (and edges as "from" and "to"),
//       writes "output" and each parameter's gradient of the output's sum, weighted by a ramp from -1 to 1
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules.h>
#include <torch/utils.h>

#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "models/graph.hpp"
#include "models/model.hpp"
#include "models/weights.hpp"

namespace {

using namespace actzip::models;

ModelOptions options_from(const std::vector<std::string>& arguments) {
  ModelOptions options;
  const std::map<std::string, std::int64_t*> sizes = {
      {"classes", &options.classes},       {"image_size", &options.image_size},
      {"vocabulary", &options.vocabulary}, {"length", &options.length},
      {"features", &options.features},     {"hidden", &options.hidden},
      {"layers", &options.layers},         {"heads", &options.heads}};
  for (const std::string& argument : arguments) {
    const std::size_t middle = argument.find('=');
    const std::string name = argument.substr(0, middle), value = argument.substr(middle + 1);
    if (name == "name") {
      options.name = value;
    } else if (name == "dropout") {
      options.dropout = std::stod(value);
    } else {
      *sizes.at(name) = std::stoll(value);
    }
  }
  return options;
}

at::Tensor adjacency_from(const std::map<std::string, at::Tensor>& given, const std::string& kind) {
  if (!given.contains("from")) return {};
  const at::Tensor from = given.at("from"), to = given.at("to");
  const auto count = static_cast<std::size_t>(from.numel());
  return normalised_adjacency({from.const_data_ptr<std::int64_t>(), count}, {to.const_data_ptr<std::int64_t>(), count},
                              given.at("input").size(0), kind);
}

void run(const std::vector<std::string>& arguments) {
  const ModelOptions options = options_from({arguments.begin() + 4, arguments.end()});
  const auto model = make_model(options);
  load_weights(*model, arguments[1]);
  const NamedTensors inputs = read_tensors(arguments[2]);
  const std::map<std::string, at::Tensor> given(inputs.begin(), inputs.end());
  const at::Tensor output = model->forward(given.at("input"), adjacency_from(given, options.name));
  torch::autograd::backward({output}, {torch::linspace(-1, 1, output.numel()).view(output.sizes())});
  NamedTensors results{{"output", output}};
  for (const auto& item : model->named_parameters()) results.emplace_back(item.key(), item.value().grad());
  write_tensors(arguments[3], results);
}

void make(const std::vector<std::string>& arguments) {
  torch::manual_seed(std::stoull(arguments[2]));
  save_weights(*make_model(options_from({arguments.begin() + 3, arguments.end()})), arguments[1]);
}

}  // namespace

int main(int count, char** values) {
  const std::vector<std::string> arguments(values + 1, values + count);
  try {
    if (arguments.size() > 4 && arguments[0] == "run") {
      run(arguments);
    } else if (arguments.size() > 3 && arguments[0] == "make") {
      make(arguments);
    } else {
      throw std::runtime_error("expected: make WEIGHTS SEED name=NAME ..., or run WEIGHTS INPUT OUTPUT name=NAME ...");
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "model_tool: %s\n", error.what());
    return 1;
  }
  return 0;
}
