// Which operator runs on this thread, and what it was given: a stack kept by a thread-local callback of torch's
// RecordFunction.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actzip/policy.hpp"
#include "observe/gradient_comparison.hpp"
#include "observe/noise_stream.hpp"
#include "operators/call.hpp"
#include "operators/operator_info.hpp"

namespace actzip::torch {

class AttentionCall;
class RecurrentCall;
class MemoryLog;
class ParameterRegistry;

/// What a function has saved, if more is known of it when it has saved everything.
class LateSaves {
 public:
  virtual ~LateSaves() = default;
  /// The function ends.
  virtual void settle() = 0;
};

/// One running operator.
struct Frame : Call {
  const OperatorInfo* info = nullptr;
  int other_saves = 0;  ///< saved so far that are neither argument nor differentiable output
  bool has_saved = false;
  std::shared_ptr<AttentionCall> attention;  ///< if it is one that can run again; mostly not
  std::shared_ptr<RecurrentCall> recurrent;  ///< the same
  std::vector<TriedSave> tried;              ///< what it saved so far, if `stream` observes; mostly empty
  std::shared_ptr<NoiseStream> stream;
  Witnesses witnesses;              ///< of what it saved so far; mostly empty
  std::unique_ptr<LateSaves> late;  ///< mostly null
};

/// An operator that saves, and the slot.
struct Saver {
  const OperatorInfo* op = nullptr;
  SlotCode slot;
  const void* parameter = nullptr;  ///< as in its call
  OperatorFacts facts;
  Frame* frame = nullptr;  ///< while it runs; null outside of all operators, and for layers
  bool is_first = false;   ///< it has saved nothing before
};

/// Whoever wants to know which operators run: a session.
class Listener {
 public:
  virtual ~Listener() = default;

  /// Gives whether modules are to be watched in this step.
  virtual bool begin_step() = 0;
  virtual void end_step() = 0;
  /// Whether it asks for the nodes of operators in the step that has begun, to see what they do in backward.
  virtual bool follows_nodes() = 0;
};

/// Listens to this thread's operators between the two calls, which nest. A session that was not listening yet begins a
/// step, and ends it when it stops. Gives whether that step needs to know modules. If it throws, nothing has begun.
bool start_listening(const std::shared_ptr<Listener>& session);
/// Throws Error(invalid_scope) if it does not listen on this thread.
void stop_listening(const Listener& session);

/// Whether `session` listens on this thread: a scope of it is open.
bool is_listening(const Listener& session);

/// What was done to memory on this thread since somebody listens; null if nobody does.
MemoryLog* memory_log();

/// Changes when the memory of `tensor` is written to, as far as its version counter and the log tell.
std::uint64_t memory_version(const at::Tensor& tensor);

/// While it lives nobody listens to this thread's operators; unless others do too, a profiler for instance.
class Unheard {
 public:
  Unheard();

 private:
  std::optional<at::RecordFunctionGuard> guard_;
};

/// An argument of the operator; not defined if it is no tensor. While the operator runs.
at::Tensor tensor_at(const Frame& frame, int position);

/// Who saves `tensor` now, on this thread.
Saver current_saver(const at::Tensor& tensor, const ParameterRegistry& parameters);

/// The operator that runs now, on this thread, has saved something that `stream` is to try out in backward.
void note_tried(const TriedSave& save, const std::shared_ptr<NoiseStream>& stream);

/// What saves now, on this thread, has a witness: the guard is told its node when that is known.
void note_witness(const std::shared_ptr<Witness>& witness);

std::string slot_name(const OperatorInfo& op, SlotCode slot);

/// The path of that session's module whose forward runs on this thread; null if none is known. Paths are compared by
/// address, and belong to the session.
const std::string* current_module(const Listener& session);
/// Does nothing unless the session listens on this thread.
void enter_module(const Listener& session, const std::string* path);
/// Leaves `path` and whatever was entered after it and not left.
void leave_module(const Listener& session, const std::string* path);

}  // namespace actzip::torch
