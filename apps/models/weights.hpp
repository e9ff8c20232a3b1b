// Reads and writes weights in the format of Python's torch.save(state_dict) and torch.load(weights_only=True).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace actzip::models {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Writes a dict of tensors atomically: writes a file next to `path`, flushes it to the disk and renames it, so that
/// `path` holds its old content or all of the new. If that fails, removes the new file and throws actzip::Error.
void write_tensors(const std::string& path, const NamedTensors& tensors);

/// Reads a dict of tensors to the CPU. Never executes code from the file. Throws actzip::Error, naming the file.
NamedTensors read_tensors(const std::string& path);

/// Returns parameters and buffers by name, with the names and order that Python has. They share memory with the model.
NamedTensors state_of(const ::torch::nn::Module& model);

void save_weights(const ::torch::nn::Module& model, const std::string& path);

/// Copies tensors into the model, on any device and of any type, and returns their number. Throws actzip::Error that
/// lists all tensors that are unknown, missing or of another shape; the model is then unchanged. A batch norm's counter
/// of batches may be missing.
std::size_t load_weights(::torch::nn::Module& model, const NamedTensors& tensors, const std::string& where);
std::size_t load_weights(::torch::nn::Module& model, const std::string& path);

}  // namespace actzip::models
