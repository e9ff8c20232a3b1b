// A tensor without memory: it stands for what was kept, until somebody needs the values.
//
// Backward calls an operator with what a node restores. Some operators can be computed from the encoded bytes in one
// pass, which saves writing the values and reading them again; they get such a tensor, and encoded_backward.cpp has
// them. It has sizes, strides, type and device of what was saved. Any other operator that meets it gets the values:
// torch's dispatcher comes here first, because the tensor also belongs to a backend of our own.
#pragma once

#include <ATen/core/Tensor.h>

#include "session/packed.hpp"

namespace actzip::torch {

/// What such a tensor stands for.
struct Encoded {
  Packed packed;       ///< is_encoded()
  double scale = 1.0;  ///< of the values
};

/// Throws as Packed::check_version().
at::Tensor encoded_tensor(Encoded encoded);

/// What `tensor` stands for; null for any other tensor.
const Encoded* encoded_in(const at::Tensor& tensor);

/// `tensor`, or the values that it stands for.
at::Tensor decoded(const at::Tensor& tensor);

/// What a node gets that calls an operator of encoded_backward.cpp: an encoded tensor where kernels take one, else what
/// unpack_as_tried() gives.
at::Tensor for_known_operator(const Packed& packed);

/// What the node that runs now gets.
at::Tensor for_current_node(const Packed& packed);

/// Tells torch's dispatcher, once. Throws Error(backend_unavailable), and tells it nothing, if another library in this
/// process has taken the same private backend.
void install_encoded_tensors();

}  // namespace actzip::torch
