// Asks the policy what to keep of a tensor that a compiled graph saves, from shapes alone: no tensors exist yet.
#pragma once

#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "actzip/session.hpp"

namespace actzip::torch {

using GraphShape = std::vector<std::int64_t>;

/// A call of an operator that a graph saves a tensor for, as far as the graph still knows it.
struct GraphSaver {
  std::string module;
  std::string schema;  ///< "aten::addmm"
  std::string slot;
  int position = 0;                ///< of the slot: see SlotCode
  std::vector<GraphShape> shapes;  ///< of the arguments; empty if one is no tensor, or unknown
  std::vector<double> numbers;     ///< 0 if an argument is no number
  bool meets_parameter = false;
  bool meets_itself = false;
  bool recomputable = false;
  bool after_model = false;
};

struct GraphTensor {
  DType dtype = DType::f32;
  Shape shape;
};

/// What to keep of a tensor that serves several savers.
struct GraphDecision {
  Decision decision;
  std::string op;  ///< of the most demanding saver, as in reports: "addmm"
  std::string slot;
  std::string module;
  Use use = Use::unknown;
};
GraphDecision decide_for_graph(actzip::Session& session, const GraphTensor& tensor, std::span<const GraphSaver> savers);

}  // namespace actzip::torch
