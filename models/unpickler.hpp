// What torch.save() writes of tensors in dicts, lists and tuples, beside numbers and texts.
#pragma once

#include <ATen/core/ivalue.h>

namespace caffe2::serialize {
class PyTorchStreamReader;
}

namespace actzip::models {

/// The value of an archive, its tensors on the CPU. torch's own C++ reader knows no OrderedDict, which state dicts are.
/// Nothing is executed: names that would be called stand for tensors and dicts, and others are refused. Throws
/// std::runtime_error.
at::IValue unpickle(caffe2::serialize::PyTorchStreamReader& archive);

}  // namespace actzip::models
