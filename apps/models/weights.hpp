// Weights as files that Python's torch.save(state_dict) writes and torch.load(weights_only=True) reads.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace actzip::models {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Writes a dict of tensors. `path` holds either what it held before or all of the new: a file beside it is written,
/// flushed to the disk, and renamed. Throws actzip::Error if that fails, and removes the file beside it.
void write_tensors(const std::string& path, const NamedTensors& tensors);

/// Reads a dict of tensors, to the CPU. Nothing in the file is executed. Throws actzip::Error, naming the file.
NamedTensors read_tensors(const std::string& path);

/// Parameters and buffers by their names and in their order in Python. They share memory with the model.
NamedTensors state_of(const ::torch::nn::Module& model);

void save_weights(const ::torch::nn::Module& model, const std::string& path);

/// Copies tensors into the model, whatever its device and type; gives their number. Throws actzip::Error, listing all
/// names that are unknown, missing, or of another shape; the model is then unchanged. Counters of batches may be
/// missing.
std::size_t load_weights(::torch::nn::Module& model, const NamedTensors& tensors, const std::string& where);
std::size_t load_weights(::torch::nn::Module& model, const std::string& path);

}  // namespace actzip::models
