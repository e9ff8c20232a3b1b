// Operators of compiled graphs that compute a gradient from encoded bytes.
#pragma once

#include <string>
#include <vector>

namespace torch {
class Library;
}

namespace actzip::torch {

/// A gradient of an activation function that `actzip::activation_backward` computes.
struct ActivationGradient {
  std::string name;         ///< of torch's operator
  std::string approximate;  ///< its last argument; empty if it has none
};

/// Returns all of them: those of the operator table.
std::vector<ActivationGradient> activation_gradients();

void define_gradients(::torch::Library& library);

/// Adds the kernels for one device.
void implement_gradients(::torch::Library& kernels);

}  // namespace actzip::torch
