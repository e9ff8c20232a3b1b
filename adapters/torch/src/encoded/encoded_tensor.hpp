// A tensor without memory that stands for encoded bytes until the values are needed.
//
// Backward calls an operator with what a node restores. Some operators can be computed from the encoded bytes in one
// pass, which saves writing the values and reading them again. These operators are in encoded_backward.cpp, and they
// get such a tensor. It has the sizes, strides, type and device of the saved tensor. It also belongs to a backend of
// our own, so torch's dispatcher calls us first. Any other operator gets the values.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "session/packed.hpp"

namespace c10 {
class OperatorHandle;
}

namespace actzip::torch {

/// What an encoded tensor stands for.
struct Encoded {
  Packed packed;       ///< requires is_encoded()
  double scale = 1.0;  ///< the tensor is this multiple of the values
};

/// Makes an encoded tensor. Throws as Packed::check_version().
at::Tensor encoded_tensor(Encoded encoded);

/// Returns what `tensor` stands for; null if it is no encoded tensor.
const Encoded* encoded_in(const at::Tensor& tensor);

/// Returns `tensor`, or the values that it stands for.
at::Tensor decoded(const at::Tensor& tensor);

/// Calls `op` again with the values of all encoded tensors among its arguments, and in lists among them.
void decode_and_call(const c10::OperatorHandle& op, std::vector<c10::IValue>* stack);

/// Restores a tensor for a node that calls an operator of encoded_backward.cpp: as an encoded tensor if kernels may
/// support it, otherwise as unpack_as_tried() does.
at::Tensor for_known_operator(const Packed& packed);

/// Restores a tensor for the node that runs now.
at::Tensor for_current_node(const Packed& packed);

/// Registers the backend and its kernels with torch's dispatcher, once. Throws Error(backend_unavailable), and
/// registers nothing, if another library in this process uses the same private backend.
void install_encoded_tensors();

}  // namespace actzip::torch
