// A session for Paddle: describes tensors to the core, and turns what the core kept into tensors again.
#pragma once

#include <Python.h>
#include <paddle/phi/core/dense_tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "actzip/session.hpp"
#include "packed.hpp"
#include "saver.hpp"

namespace actzip::paddle_adapter {

/// Numbers pieces of memory. Unlike addresses, numbers are not reused when memory is freed.
class MemoryNumbers {
 public:
  std::uintptr_t number_of(const std::shared_ptr<phi::Allocation>& memory);
  void forget_freed();

 private:
  struct Entry {
    std::weak_ptr<phi::Allocation> memory;
    std::uintptr_t number = 0;
  };
  std::unordered_map<const phi::Allocation*, Entry> entries_;
  std::uintptr_t last_ = 0;
};

/// All calls require the GIL.
class PaddleSession {
 public:
  explicit PaddleSession(const SessionOptions& options) : core_(options), least_elems_(options.min_elems) {}

  void begin_step();
  /// Sets the memory of parameters and buffers, which exists anyway. Replaces what was set before.
  void set_parameters(const std::vector<std::shared_ptr<phi::Allocation>>& memories);

  void enter_module(const std::string* path) { modules_.push_back(path); }
  /// Leaves `path`, and modules inside it whose forward ended with an exception.
  void leave_module(const std::string* path);
  /// Returns a copy of `path` that lives as long as the session.
  const std::string* module_path(const std::string& path);

  /// Never throws, since Paddle would leave gradients disabled. A tensor that cannot be encoded is kept as it is;
  /// take_fault() then returns why.
  std::shared_ptr<Packed> pack(PyObject* object) noexcept;
  /// Returns the first error since the last call; empty if there was none.
  std::string take_fault() { return std::exchange(fault_, {}); }

  [[nodiscard]] Session& core() { return core_; }

 private:
  struct SiteAddress {
    const std::string* module;
    const Operator* op;
    int slot;
    bool operator==(const SiteAddress&) const = default;
  };
  struct Hash {
    std::size_t operator()(const SiteAddress& address) const noexcept;
  };
  /// The sites of one module, operator and slot, in the order of a step.
  struct SiteGroup {
    std::string slot;
    Use use = Use::unknown;
    std::vector<SiteId> ids;
    std::size_t next = 0;
    std::size_t step = 0;
  };

  SiteGroup& group_of(const Saver& saver, int rank);
  SiteId next_in(SiteGroup& group, const Saver& saver);
  SavedTensor describe(PyObject* object, const phi::DenseTensor& tensor, const Saver& saver, Use use);
  [[nodiscard]] std::string_view parameter_reason(PyObject* object, const phi::DenseTensor& tensor, Use use) const;
  void note_call(const Saver& saver, SavedTensor& saved);

  Session core_;
  std::int64_t least_elems_;
  std::size_t step_ = 0;
  std::vector<const std::string*> modules_;  ///< whose forward runs; innermost last
  bool saw_module_ = false;                  ///< in this step
  const Operator* last_op_ = nullptr;
  Call call_;
  MemoryNumbers numbers_;
  std::unordered_map<const phi::Allocation*, std::weak_ptr<phi::Allocation>> parameters_;
  std::unordered_map<SiteAddress, SiteGroup, Hash> groups_;
  std::unordered_map<std::string, std::unique_ptr<std::string>> paths_;
  std::string fault_;
};

}  // namespace actzip::paddle_adapter
