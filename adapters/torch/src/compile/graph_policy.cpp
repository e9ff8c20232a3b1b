#include "compile/graph_policy.hpp"

#include <c10/core/Storage.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
#include <memory>

#include "operators/operator_table.hpp"

namespace actzip::torch {

namespace {

using TensorPtr = c10::intrusive_ptr<c10::TensorImpl>;

/// A tensor that has a shape, but no memory.
TensorPtr shape_only_tensor(const GraphShape& shape) {
  auto tensor = c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(c10::Storage::use_byte_size_t{}, 0, c10::DataPtr(nullptr, c10::Device(c10::DeviceType::Meta))),
      c10::DispatchKeySet(c10::DispatchKey::Meta), c10::scalarTypeToTypeMeta(c10::ScalarType::Float));
  tensor->set_sizes_contiguous(shape);
  return tensor;
}

std::string_view op_name(std::string_view schema) {
  constexpr std::string_view kOwn = "aten::";
  if (schema.starts_with(kOwn)) schema.remove_prefix(kOwn.size());
  return schema.substr(0, schema.find('.'));
}

/// Reads facts from the arguments of the saver's call, with the operator's own reader.
OperatorFacts facts_of(const GraphSaver& saver) {
  OperatorFacts facts;
  facts.recomputable = saver.recomputable;
  facts.after_model = saver.after_model;
  const OperatorRow* const row = find_operator(op_name(saver.schema));
  if (row == nullptr || row->facts == nullptr) return facts;
  Call call;
  call.count = std::min(static_cast<int>(saver.shapes.size()), kMaxArguments);
  std::vector<TensorPtr> tensors;
  for (std::size_t i = 0; i < static_cast<std::size_t>(call.count); ++i) {
    if (!saver.shapes[i].empty()) call.tensors[i] = tensors.emplace_back(shape_only_tensor(saver.shapes[i])).get();
    if (i < saver.numbers.size()) call.numbers[i] = saver.numbers[i];
  }
  if (saver.meets_parameter) call.parameter = &saver;  // any address: readers only test whether there is one
  row->facts(call, nullptr, {saver.position}, facts);
  facts.meets_itself = saver.meets_itself;
  return facts;
}

}  // namespace

GraphDecision decide_for_graph(actzip::Session& session, const GraphTensor& tensor,
                               std::span<const GraphSaver> savers) {
  std::vector<SavedFor> sites;
  for (const GraphSaver& saver : savers) {
    const Use use = schema_use(saver.schema, saver.slot);
    const SiteId site = session.site({saver.module, op_name(saver.schema), saver.slot, 0, use});
    sites.push_back({site, facts_of(saver)});
  }
  SavedTensor saved;
  saved.view.dtype = tensor.dtype;
  saved.view.shape = tensor.shape;
  GraphDecision result;
  result.decision = session.decide(saved, sites);
  const auto found = std::ranges::find(sites, result.decision.site, &SavedFor::site);
  const GraphSaver& saver = savers[static_cast<std::size_t>(found - sites.begin())];
  result.op = op_name(saver.schema);
  result.slot = saver.slot;
  result.module = saver.module;
  result.use = schema_use(saver.schema, saver.slot);
  return result;
}

}  // namespace actzip::torch
